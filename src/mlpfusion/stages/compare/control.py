"""Tells a control that changed alone from a machine that changed: the former gives the other rows no verdict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.comparison import ClockChange

REASON: Final = "the control changed, and this time did not"
_FEWEST: Final = 2


def alone(own: Iterable[ClockChange | None], rows: Sequence[Sequence[ClockChange]], threshold: float) -> frozenset[str]:
    """The clocks by which the control changed by more than `threshold` and most others, two at least, did not with it.

    `own` are the control's changes, `rows` those of the others, of the times as they were measured. One row that stayed
    may as well be one that made up for a machine that changed.
    """
    found = set()
    for one in own:
        moved = _log(one)
        if one is None or moved is None or abs(moved) <= math.log1p(threshold):
            continue
        others = [log for row in rows for each in row if each.clock == one.clock and (log := _log(each)) is not None]
        stayed = sum(abs(log) < abs(log - moved) for log in others)
        if stayed >= _FEWEST and 2 * stayed > len(others):
            found.add(one.clock)
    return frozenset(found)


def judged(change: ClockChange, clocks: frozenset[str], threshold: float) -> ClockChange:
    """The change, without a verdict that its own time does not bear out if the control changed alone by its clock."""
    if change.clock not in clocks or change.word not in ("slower", "faster"):
        return change
    log = _log(change)
    limit = math.log1p(threshold)
    if log is not None and (log > limit if change.word == "slower" else log < -limit):
        return change
    return msgspec.structs.replace(change, word="inconclusive", reason=REASON, needed=None)


def _log(change: ClockChange | None) -> float | None:
    """The logarithm of the candidate's time over the baseline's."""
    if change is None or not change.baseline_us or not change.candidate_us:
        return None
    return math.log(change.candidate_us) - math.log(change.baseline_us)
