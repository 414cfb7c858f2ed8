"""Says in short what a finished cell found: the winner, ties, times over eager's, why backends failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.records.sweep.study import Outcome, OverEager
from mlpfusion.stages.choose import decide

if TYPE_CHECKING:
    from mlpfusion.records.choice import ClockName
    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Profile, Row


def outcome(found: Profile) -> Outcome:
    """The outcome of a cell by the clock that a choice of its device goes by."""
    clock = clock_of(found)
    point = decide.point(found, clock, decide.disqualified([found]))
    speeds = {row.backend: _over_eager(row, clock) for row in found.rows if row.status == "ok"}
    return Outcome(
        clock=clock,
        winner=point.winner,
        tied=point.tied,
        speeds={name: speed for name, speed in speeds.items() if speed is not None},
        failed={row.backend: row.reason or "no reason" for row in found.rows if row.status == "failed"},
    )


def clock_of(found: Profile) -> ClockName:
    """The clock that decides on a profile's device."""
    return "event_us" if found.device.kind == "cuda" else "wall_us"


def _over_eager(row: Row, name: ClockName) -> OverEager | None:
    clock: Clock | None = getattr(row.clocks, name, None)
    ratio = clock.ratio_to_eager if clock is not None else None
    return None if ratio is None else OverEager(median=ratio.median, low=ratio.low, high=ratio.high)
