"""Reads the settings of a card that change its speed, and tells from a race whether its clock was locked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from mlpfusion.environment import identity, nvml
from mlpfusion.errors import MeasurementError
from mlpfusion.records.environment import Card

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.environment import Process

_LEAST: Final = 20  # readings of a clock that stands still before it counts as locked
_Answer = TypeVar("_Answer")


def settings(device: Device) -> Card | None:
    """The settings of the card at this moment; None on a CPU."""
    if device.kind != "cuda":
        return None
    reasons: dict[str, str] = {"locked_clocks": "not raced"}
    try:
        card = nvml.card(device)
    except MeasurementError as error:
        asked = ("power_limit_w", "ecc", "mig", "persistence", "highest_sm_clock_mhz", "locked_clocks")
        reasons = dict.fromkeys(asked, str(error))
        return Card(digest=_answer("digest", lambda: identity.digest(nvml.uuid(device)), reasons), reasons=reasons)
    return Card(
        power_limit_w=_answer("power_limit_w", card.power_limit_w, reasons),
        ecc=_answer("ecc", card.has_ecc, reasons),
        mig=_answer("mig", card.has_mig, reasons),
        persistence=_answer("persistence", card.is_persistent, reasons),
        highest_sm_clock_mhz=_answer("highest_sm_clock_mhz", card.highest_sm_clock_mhz, reasons),
        digest=_answer("digest", lambda: identity.digest(nvml.uuid(device)), reasons),
        reasons=reasons,
    )


def _answer(name: str, question: Callable[[], _Answer], reasons: dict[str, str]) -> _Answer | None:
    try:
        return question()
    except MeasurementError as error:
        reasons[name] = str(error)
        return None


def with_clocks(card: Card | None, processes: Sequence[Process]) -> Card | None:
    """The card with whether its clock was locked in a race, which NVML has no question for.

    A clock that moved is not locked. One that stood still below the highest, with nothing that kept it down, is. One
    that stood still at the highest may be either, which is the same for what is measured.
    """
    if card is None:
        return None
    readings = [each.sm_clock_mhz for each in processes if each.sm_clock_mhz is not None]
    if not readings:
        return card
    low, high = min(each.low for each in readings), max(each.high for each in readings)
    kept_down = {reason for each in processes for reason in each.throttle_reasons or ()}
    if low != high:
        return _locked(card, False)
    if sum(each.n for each in readings) < _LEAST or card.highest_sm_clock_mhz is None:
        return _locked(card, None, "too few readings of a clock that stood still")
    if high >= card.highest_sm_clock_mhz:
        return _locked(card, None, "the clock stood still at its highest: locked or not is the same")
    if kept_down - {"applications clocks setting"}:
        return _locked(card, None, f"the clock stood still, kept down by: {', '.join(sorted(kept_down))}")
    return _locked(card, True)


def _locked(card: Card, locked: bool | None, reason: str | None = None) -> Card:
    reasons = {name: why for name, why in card.reasons.items() if name != "locked_clocks"}
    if reason is not None:
        reasons["locked_clocks"] = reason
    return msgspec.structs.replace(card, locked_clocks=locked, reasons=reasons)
