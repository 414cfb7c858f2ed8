"""Devices: what is detected, and which cards are known."""

from __future__ import annotations

import pytest
import torch

from mlpfusion.device import KNOWN_CARDS, Device, describe, detect
from mlpfusion.errors import UsageError

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def card(name: str) -> Device:
    return Device(kind="cuda", name=name, runtime="cuda")


def test_the_cpu_is_described():
    here = detect("cpu")
    assert here.kind == "cpu"
    assert here.name
    assert here.memory_bytes > 0
    assert here.peaks is None


@no_gpu
def test_without_a_gpu_the_cpu_is_taken_and_cuda_refused():
    assert detect().kind == "cpu"
    with pytest.raises(UsageError, match=r"'cuda' is not here.*valid here: cpu"):
        detect("cuda")


def test_an_unknown_kind_is_named():
    with pytest.raises(UsageError, match="unknown device 'tpu'; valid: cuda, cpu"):
        detect("tpu")


def test_anything_but_a_gpu_is_described_as_the_cpu():
    assert describe(torch.device("meta")).kind == "cpu"


def test_known_cards_are_told_apart_and_unknown_ones_never_guessed():
    assert card("NVIDIA H100 80GB HBM3").peaks == KNOWN_CARDS["NVIDIA H100 80GB HBM3"]
    assert card("NVIDIA H100 PCIe").peaks != card("NVIDIA H100 80GB HBM3").peaks
    assert card("NVIDIA H200").peaks.bandwidth == 4.8e12
    for other in ("NVIDIA H100", "NVIDIA B300", "NVIDIA A100", "AMD Instinct MI300X", ""):
        assert card(other).peaks is None


@pytest.mark.parametrize("name", KNOWN_CARDS)
@pytest.mark.parametrize("rest", [" NVL", " MIG 3g.40gb", "-80C", " Laptop GPU"])
def test_a_longer_name_is_another_card_or_a_part_of_one(name, rest):
    assert card(name).peaks is not None
    assert card(name + rest).peaks is None


def test_the_interpreter_is_seen(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert detect("cpu").interpreted
    monkeypatch.delenv("TRITON_INTERPRET")
    assert not detect("cpu").interpreted
