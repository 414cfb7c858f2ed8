"""A card's settings, why one is not known, and whether its clock was locked in a race."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from msgspec.structs import replace
from support.fake_nvml import UUID, Library

from mlpfusion.device import Device
from mlpfusion.environment import card
from mlpfusion.records.environment import Card, Process, Readings

if TYPE_CHECKING:
    from pathlib import Path

GPU = Device(kind="cuda", name="NVIDIA H200", runtime="cuda")
KNOWN = Card(highest_sm_clock_mhz=1980, reasons={"locked_clocks": "not raced"})


@pytest.fixture(autouse=True)
def uuid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=UUID))


def test_a_cpu_has_no_card() -> None:
    assert card.settings(Device(kind="cpu", name="a CPU")) is None
    assert card.with_clocks(None, ()) is None


def test_what_nvml_says_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    found = card.settings(GPU)
    assert (found.power_limit_w, found.ecc, found.mig, found.persistence) == (700.0, True, False, True)
    assert found.highest_sm_clock_mhz == 1980
    assert UUID not in repr(found)
    assert found.reasons == {"locked_clocks": "not raced"}


def test_what_is_not_known_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library({"nvmlDeviceGetMigMode": 3, "nvmlDeviceGetEccMode": 3}))
    found = card.settings(GPU)
    absent = {name for name in found.__struct_fields__ if getattr(found, name) is None}
    assert absent == set(found.reasons) == {"mig", "ecc", "locked_clocks"}


def test_without_nvml_the_digest_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", absent)
    found = card.settings(GPU)
    assert found.digest is not None
    absent_fields = {name for name in found.__struct_fields__ if getattr(found, name) is None}
    assert absent_fields == set(found.reasons)


def process(low: float, high: float, n: int = 60, throttle: tuple[str, ...] | None = ()) -> Process:
    clock = Readings(n=n, low=low, median=high, high=high)
    return Process(started="2026-01-01T00:00:00+00:00", sm_clock_mhz=clock, throttle_reasons=throttle)


@pytest.mark.parametrize(
    ("processes", "locked", "reason"),
    [
        ([], None, "not raced"),
        ([process(1500, 1980)], False, None),
        ([process(1980, 1980), process(1965, 1965)], False, None),
        ([process(1500, 1500)], True, None),
        ([process(1500, 1500, throttle=("applications clocks setting",))], True, None),
        ([process(1500, 1500, throttle=None)], True, None),
        ([process(1500, 1500, n=19)], None, "too few readings"),
        ([process(1500, 1500, n=10)] * 2, True, None),
        ([process(1980, 1980)], None, "at its highest"),
        ([process(1500, 1500, throttle=("software power cap",))], None, "kept down by: software power cap"),
    ],
)
def test_whether_its_clock_was_locked(processes: list[Process], locked: bool | None, reason: str | None) -> None:
    found = card.with_clocks(KNOWN, processes)
    assert found.locked_clocks is locked
    assert (reason is None) == ("locked_clocks" not in found.reasons)
    assert reason is None or reason in found.reasons["locked_clocks"]


def test_without_the_highest_clock_one_that_stands_still_says_nothing() -> None:
    assert card.with_clocks(replace(KNOWN, highest_sm_clock_mhz=None), [process(1500, 1500)]).locked_clocks is None
