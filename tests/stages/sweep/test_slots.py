"""The places where cells are measured: cards by what CUDA is told of them, and CPUs divided among them."""

from __future__ import annotations

import os
import subprocess

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.device import Device
from mlpfusion.environment import nvml
from mlpfusion.errors import MeasurementError, MlpfusionError, UsageError
from mlpfusion.stages.sweep import slots

H200 = Device(kind="cuda", name="NVIDIA H200", runtime="cuda")


@given(st.frozensets(st.integers(0, 300), min_size=1, max_size=64), st.integers(1, 9))
def test_cpus_are_divided_once_each(cpus, count):
    found = slots._divided(cpus, count)
    assert len(found) == count
    assert frozenset().union(*found) == cpus
    if len(cpus) >= count:
        assert sum(map(len, found)) == len(cpus)
        assert max(map(len, found)) - min(map(len, found)) <= 1


def test_what_cuda_is_told_is_divided(monkeypatch):
    monkeypatch.setattr(nvml, "uuids", lambda: ("GPU-1", "MIG-2"))
    assert slots._selectors({}) == ["GPU-1", "MIG-2"]
    assert slots._selectors({slots.VISIBLE: "3, GPU-x,3,"}) == ["3", "GPU-x"]


def test_without_nvml_cards_have_numbers(monkeypatch):
    def absent():
        raise MeasurementError("none")

    monkeypatch.setattr(nvml, "uuids", absent)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert slots._selectors({}) == ["0", "1"]


@pytest.fixture
def cards(monkeypatch):
    """Processes that say what a card is called; one with the selector `lost` has none."""

    class Asked:
        def __init__(self, command, *, env, **options):
            self.name = env[slots.VISIBLE]

        def communicate(self, timeout):
            return (b"" if self.name == "lost" else msgspec.json.encode(H200)), None

        def kill(self):
            pass

        wait = kill

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(subprocess, "Popen", Asked)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    return monkeypatch


def test_a_card_that_does_not_answer_is_left_out(cards):
    cards.setenv(slots.VISIBLE, "0,lost,GPU-1")
    found = slots.found()
    assert [(each.selector, each.device) for each in found] == [("0", H200), ("GPU-1", H200)]
    assert found[0].environment[slots.VISIBLE] == "0"
    assert found[0].cpus & found[1].cpus == frozenset()


def test_no_card_that_answers_is_an_error(cards):
    cards.setenv(slots.VISIBLE, "lost")
    with pytest.raises(MlpfusionError, match="none of 1 GPUs answers"):
        slots.found("cuda")


def test_the_cpu_is_one_place(cards):
    (found,) = slots.found("cpu")
    assert (found.selector, found.device.kind, found.cpus) == (None, "cpu", {0, 1, 2, 3})
    assert slots.VISIBLE not in found.environment or found.environment == dict(os.environ)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a refusal without a GPU")
def test_a_kind_that_is_not_here_is_refused():
    for kind, said in (("cuda", "torch sees no GPU"), ("h200", "unknown device 'h200'")):
        with pytest.raises(UsageError, match=said):
            slots.found(kind)
    assert slots.main() == 1
