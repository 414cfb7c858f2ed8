"""What a card's sensors read around a race."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.fake_nvml import UUID, Library

from mlpfusion.device import Device
from mlpfusion.measure.sensors import Sensors
from mlpfusion.records.environment import Readings

GPU = Device(kind="cuda", name="NVIDIA H200", runtime="cuda")
ALL = {"sm_clock_mhz", "power_w", "temperature_c", "throttle_reasons"}


def sensors(monkeypatch: pytest.MonkeyPatch, library: Any) -> Sensors:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=UUID))
    return Sensors(GPU)


def test_lowest_median_and_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    made = sensors(monkeypatch, library)
    for clock, bits in ((1980, 0x1), (1500, 0x4), (1755, 0x40)):
        library.answers.update(nvmlDeviceGetClockInfo=(clock,), nvmlDeviceGetCurrentClocksThrottleReasons=(bits,))
        made.read()
    assert made.readings()["sm_clock_mhz"] == Readings(n=3, low=1500.0, median=1755.0, high=1980.0)
    assert made.readings()["power_w"] == Readings(n=3, low=412.5, median=412.5, high=412.5)
    assert made.throttled() == ("software power cap", "hardware thermal slowdown")
    assert made.reasons == {}


def test_a_card_that_was_never_slowed_down_has_no_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sensors(monkeypatch, Library(nvmlDeviceGetCurrentClocksThrottleReasons=(0x1,)))
    assert made.throttled() is None
    made.read()
    assert made.throttled() == ()


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("nvmlDeviceGetClockInfo", "sm_clock_mhz"),
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetTemperature", "temperature_c"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "throttle_reasons"),
    ],
)
def test_a_sensor_that_fails_is_named_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch, question: str, name: str
) -> None:
    library = Library()
    made = sensors(monkeypatch, library)
    made.read()
    library.codes[question] = 3
    made.read()
    assert set(made.reasons) == {name}
    assert set(made.readings()) == ALL - {name, "throttle_reasons"}
    assert (made.throttled() is None) == (name == "throttle_reasons")


def test_a_cpu_has_none_and_neither_has_a_card_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", absent)
    for device in (Device(kind="cpu", name="a CPU"), GPU):
        made = Sensors(device)
        made.read()
        assert (made.readings(), made.throttled(), set(made.reasons)) == ({}, None, ALL)
