"""Tells a control that changed by itself from a machine that changed: the former gives the other rows no verdict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.comparison import ClockChange

STAYED: Final = "the control changed, and this time did not"
WENT: Final = "this time changed with the control's, and no more than half of the others did"
_FEWEST: Final = 2
_THIRD: Final = 1 / 3  # of the control's change: who changed by less stayed, by more than two of them went with it


class Others(NamedTuple):
    """How many other rows changed with the control, how many stayed, and how many there are."""

    went: int
    stayed: int
    number: int

    @property
    def is_machine(self) -> bool:
        """Whether more than half went with it, which one cause must have."""
        return 2 * self.went > self.number

    @property
    def is_control(self) -> bool:
        """Whether it is as likely the control's own change. One other row may have made up for the machine's."""
        return self.number >= _FEWEST and self.stayed >= max(self.went, 1)


def others(own: ClockChange, rows: Iterable[Sequence[ClockChange]]) -> Others:
    """What the times of the other rows did, as they were measured, when the control changed by `own`."""
    moved = _log(own)
    logs = [log for row in rows for each in row if each.clock == own.clock and (log := _log(each)) is not None]
    shares = [log / moved for log in logs] if moved else []
    return Others(sum(each > 2 * _THIRD for each in shares), sum(each < _THIRD for each in shares), len(shares))


def alone(own: Iterable[ClockChange | None], rows: Sequence[Sequence[ClockChange]]) -> frozenset[str]:
    """The clocks by which the control's change may be its own; `rows` are the changes of the other rows."""
    return frozenset(each.clock for each in own if each is not None and others(each, rows).is_control)


def judged(change: ClockChange, clocks: frozenset[str], threshold: float) -> ClockChange:
    """The change, without a verdict that its own time contradicts if the control's change by its clock is its own."""
    log = _log(change)
    if change.clock not in clocks or log is None:
        return change
    limit = math.log1p(threshold)
    borne_out = {"slower": log > limit, "faster": log < -limit, "same": abs(log) <= limit}
    if change.word is None or borne_out.get(change.word, True):
        return change
    reason = WENT if change.word == "same" else STAYED
    return msgspec.structs.replace(change, word="inconclusive", reason=reason, needed=None)


def _log(change: ClockChange) -> float | None:
    """The logarithm of the candidate's time over the baseline's."""
    if not change.baseline_us or not change.candidate_us:
        return None
    return math.log(change.candidate_us) - math.log(change.baseline_us)
