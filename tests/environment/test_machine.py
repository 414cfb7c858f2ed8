"""The environment of a measurement: versions, clocks, and of the variables only those that change what is measured."""

from __future__ import annotations

import platform
import subprocess
from types import SimpleNamespace

import pytest
import torch

from mlpfusion.device import Device, detect
from mlpfusion.environment import machine

GPU = Device(kind="cuda", name="a GPU", runtime="cuda", index=1)
UUID = "GPU-7d1f8a3e"


def test_it_names_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine.collect(detect("cpu"), {"b": None, "a": "1"})
    assert (found.python, found.torch) == (platform.python_version(), torch.__version__)
    assert list(found.distributions.items()) == [("a", "1"), ("b", None)]
    assert (found.driver, found.sm_clock_mhz, found.memory_clock_mhz) == (None, None, None)
    monkeypatch.setattr(machine.metadata, "version", raises(machine.metadata.PackageNotFoundError))
    assert machine.collect(detect("cpu"), {}).liger_kernel is None


def raises(error):
    def raise_it(*_, **__):
        raise error

    return raise_it


def test_no_other_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in machine.FLAGS:
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("MY_SECRET", "hunter2")
    assert machine.collect(detect("cpu"), {}).flags == dict.fromkeys(machine.FLAGS, "0")
    monkeypatch.setenv(machine.FLAGS[1], "hf_planted-token")
    assert machine.collect(detect("cpu"), {}).flags[machine.FLAGS[1]] == "another value"
    monkeypatch.delenv(machine.FLAGS[0])
    assert machine.FLAGS[0] not in machine.collect(detect("cpu"), {}).flags


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An nvidia-smi that answers as it is told, and what it was asked."""
    fake = SimpleNamespace(selectors=[], answers={}, uuid=UUID)

    def run(command, **_):
        fake.selectors.append(command[command.index("-i") + 1])
        answer = fake.answers.get(fake.selectors[-1])
        if answer is None:
            raise subprocess.CalledProcessError(6, command)
        return SimpleNamespace(stdout=answer)

    monkeypatch.setattr(machine.subprocess, "run", run)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=fake.uuid))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def clocks(monkeypatch: pytest.MonkeyPatch) -> tuple[str | None, int | None, int | None]:
    found = machine.collect(GPU, {})
    return found.driver, found.sm_clock_mhz, found.memory_clock_mhz


def test_a_card_is_asked_for_by_its_uuid(asked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.answers[UUID] = "570.1, 1980, 2619\n"
    assert clocks(monkeypatch) == ("570.1", 1980, 2619)
    asked.uuid = UUID.removeprefix("GPU-")
    assert clocks(monkeypatch) == ("570.1", 1980, 2619)
    assert asked.selectors == [UUID, UUID]


def test_then_by_its_index_unless_that_may_be_another_cards(
    asked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.answers["1"] = "570.1, 1980, 2619\n"
    assert clocks(monkeypatch) == ("570.1", 1980, 2619)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    assert clocks(monkeypatch) == (None, None, None)
    assert asked.selectors == [UUID, "1", UUID]


@pytest.mark.parametrize("answer", ["", "570.1\n", "570.1, [N/A], 2619\n", "a, b, c, d\n"])
def test_an_answer_that_is_none_is_unknown(
    asked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    asked.answers = {UUID: answer, "1": answer}
    assert clocks(monkeypatch) == (None, None, None)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "no"), subprocess.TimeoutExpired("nvidia-smi", 60)])
def test_without_the_program_or_its_answer_clocks_are_unknown(
    asked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(machine.subprocess, "run", raises(error))
    assert clocks(monkeypatch) == (None, None, None)
