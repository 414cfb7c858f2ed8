"""A card's answers by NVML, and why one has none."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.fake_nvml import UUID, Library

from mlpfusion.device import Device
from mlpfusion.environment import nvml
from mlpfusion.errors import MeasurementError

GPU = Device(kind="cuda", name="NVIDIA H200", runtime="cuda")
QUESTIONS = {
    "sm_clock_mhz": ("nvmlDeviceGetClockInfo", 1755),
    "highest_sm_clock_mhz": ("nvmlDeviceGetMaxClockInfo", 1980),
    "power_w": ("nvmlDeviceGetPowerUsage", 412.5),
    "power_limit_w": ("nvmlDeviceGetEnforcedPowerLimit", 700.0),
    "temperature_c": ("nvmlDeviceGetTemperature", 61),
    "throttle_reasons": (
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        ("software power cap", "hardware thermal slowdown"),
    ),
    "has_ecc": ("nvmlDeviceGetEccMode", True),
    "has_mig": ("nvmlDeviceGetMigMode", False),
    "is_persistent": ("nvmlDeviceGetPersistenceMode", True),
}


def card(monkeypatch: pytest.MonkeyPatch, library: Library) -> nvml.Card:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=UUID))
    return nvml.card(GPU)


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_its_answer(monkeypatch: pytest.MonkeyPatch, question: str) -> None:
    library = Library()
    assert getattr(card(monkeypatch, library), question)() == QUESTIONS[question][1]
    assert library.asked[1][1][0] == UUID.encode()


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(("code", "why"), [(3, "not supported on this card"), (999, "NVML's error 999")])
def test_a_question_without_an_answer_says_why(
    monkeypatch: pytest.MonkeyPatch, question: str, code: int, why: str
) -> None:
    name = QUESTIONS[question][0]
    found = card(monkeypatch, Library({name: code}))
    with pytest.raises(MeasurementError, match=f"{name}: {why}"):
        getattr(found, question)()


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_old_driver_lacks_a_question(monkeypatch: pytest.MonkeyPatch, question: str) -> None:
    name = QUESTIONS[question][0]
    found = card(monkeypatch, Library(lacks=name))
    with pytest.raises(MeasurementError, match=f"this driver's NVML has no {name}"):
        getattr(found, question)()


@pytest.mark.parametrize("name", ["nvmlInit_v2", "nvmlDeviceGetHandleByUUID"])
def test_a_card_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(MeasurementError, match=f"{name}: NVML's error 9"):
        card(monkeypatch, Library({name: 9}))


def test_where_there_is_no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(MeasurementError, match=r"libnvidia-ml\.so\.1 is not here"):
        nvml.card(GPU)
    with pytest.raises(MeasurementError, match="NVML knows NVIDIA's cards alone, and this is an Instinct"):
        nvml.card(Device(kind="cuda", name="an Instinct", runtime="rocm"))


def test_a_reason_that_is_new_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    found = card(monkeypatch, Library(nvmlDeviceGetCurrentClocksThrottleReasons=(0x1002,)))
    assert found.throttle_reasons() == ("applications clocks setting", "reason 0x1000")


@pytest.mark.parametrize(("said", "asked"), [("GPU-1", "GPU-1"), ("MIG-1", "MIG-1"), ("1", "GPU-1")])
def test_the_name_of_a_card(monkeypatch: pytest.MonkeyPatch, said: str, asked: str) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=said))
    assert nvml.uuid(GPU) == asked


class Names:
    """NVML of a whole card, one in two instances, and one that can be divided and is not."""

    cards = (("GPU-a", ()), ("GPU-b", ("MIG-1", None, "MIG-2")), ("GPU-c", (None, None)))

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.cards)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = index + 1
        return 0

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, most: Any) -> int:
        instances = self.cards[handle.value - 1][1]
        most._obj.value = len(instances)
        return 0 if instances else 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, place: int, instance: Any) -> int:
        instance._obj.value = 10 * handle.value + place
        return 0 if self.cards[handle.value - 1][1][place] else 6

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, length: int) -> int:
        card, place = divmod(handle.value, 10)
        text.value = (self.cards[card - 1][1][place] if card else self.cards[place - 1][0]).encode()
        return 0


def test_every_card_and_every_instance_of_one_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Names())
    assert nvml.uuids() == ("GPU-a", "MIG-1", "MIG-2", "GPU-c")
