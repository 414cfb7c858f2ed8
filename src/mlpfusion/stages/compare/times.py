"""Compares one clock of two rows: what it may decide, and the difference."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from mlpfusion.measure.host_load import DISTURBING
from mlpfusion.records.comparison import ClockChange
from mlpfusion.stages.compare import difference, power, verdict

if TYPE_CHECKING:
    from mlpfusion.stages.compare.difference import Difference, Process
    from mlpfusion.stages.compare.subjects import Timed

_MOST: Final = math.log(1e30)  # what a ratio in a file may be
TRACED: Final = "kernel_us"  # of a trace of each row by itself, in no rounds with the control


class Side(NamedTuple):
    """A clock of one row, and that of its control; `control` None is none in that file."""

    timed: Timed | None
    control: Timed | None


class Outcome(NamedTuple):
    """What one clock says. `reason` says why there is no difference or, where there is one, why it cannot decide."""

    clock: str
    baseline: Timed | None
    candidate: Timed | None
    found: Difference | None
    reason: str | None = None

    @property
    def decides(self) -> bool:
        """Whether it counts for the verdict of its row."""
        return self.found is not None and self.reason is None


def outcome(clock: str, a: Side, b: Side, *, with_control: bool, together: bool) -> Outcome:
    """The candidate's clock `b` against the baseline's `a`; `together` if both were timed in the same processes."""
    reason = _absent(clock, a, b, with_control=with_control and not together)
    if reason is not None or a.timed is None or b.timed is None:
        return Outcome(clock, a.timed, b.timed, None, reason)
    prior = difference.PRIORS.get(clock, difference.PRIOR)
    if together:
        both = processes_of(clock, b.timed, a.timed)
        found = difference.within(both, prior) if both else None
    else:
        sides = [
            processes_of(clock, each.timed, each.control if with_control else None) for each in (a, b) if each.timed
        ]
        found = difference.between(sides[0], sides[1], prior) if all(sides) else None
    if found is None:
        return Outcome(
            clock, a.timed, b.timed, None, f"fewer than {difference.LEAST_ROUNDS} rounds with a time of both"
        )
    return Outcome(clock, a.timed, b.timed, found, _indecisive(clock, a, b) or _of_few(found, a, b))


def _absent(clock: str, a: Side, b: Side, *, with_control: bool) -> str | None:
    for side, who in ((a, "baseline"), (b, "candidate")):
        if side.timed is None:
            return f"the {who} has none"
        if not side.timed.rounds:
            return f"the {who} keeps no samples"
        if with_control and (side.control is None or not side.control.rounds):
            return f"the {who}'s control has none"
    return None


def processes_of(clock: str, timed: Timed, control: Timed | None) -> tuple[Process, ...]:
    """The processes in which both were timed: paired by round where the rounds are the same."""
    if control is None:
        return difference.processes(timed.rounds, None)
    both = [(a, b) for a, b in zip(timed.rounds, control.rounds, strict=False) if a and b]
    rounds, others = [a for a, _ in both], [b for _, b in both]
    alike = all(len(a) == len(b) for a, b in both)
    pair = difference.processes if clock != TRACED and timed.paired and control.paired and alike else difference.apart
    return pair(rounds, others)


def _indecisive(clock: str, a: Side, b: Side) -> str | None:
    """Why a clock decides nothing: the host was busy, or nobody knows; or rounds cannot be paired."""
    for side, who in ((a, "baseline"), (b, "candidate")):
        if side.timed is None:
            continue
        if side.timed.has_host and side.timed.load is None:
            return f"the host: background load not recorded in the {who}"
        if side.timed.has_host and side.timed.load is not None and side.timed.load >= DISTURBING:
            return f"the host: background load {side.timed.load:.0%} in the {who}"
        if clock != TRACED and not side.timed.paired:
            return f"rounds were dropped in the {who} and cannot be paired"
    return None


def _of_few(found: Difference, a: Side, b: Side) -> str | None:
    """Why a clock decides nothing: what the host did in a few processes says nothing of what it does in others."""
    has_host = any(side.timed is not None and side.timed.has_host for side in (a, b))
    if not has_host or found.enough:
        return None
    return f"the host: fewer than {difference.ENOUGH} processes in one of the two"


def change(found: Outcome, p: float, outcomes: int, threshold: float) -> ClockChange:
    """The record of an outcome; `p` is adjusted for the number of `outcomes` that decide."""
    medians = ClockChange(
        clock=found.clock,
        baseline_us=None if found.baseline is None else found.baseline.median,
        candidate_us=None if found.candidate is None else found.candidate.median,
        reason=found.reason,
    )
    if found.found is None:
        return medians
    one = found.found
    half = one.half_width()
    word = verdict.word(one, p, threshold) if found.decides else None
    needed = power.processes_needed(one, outcomes, threshold) if word == "inconclusive" else None
    least = min(one.processes)
    few = None if one.enough else "one process" if least == 1 else f"{least} processes"
    return msgspec.structs.replace(
        medians,
        ratio=_ratio(-one.log),
        low=_ratio(-one.log - half),
        high=_ratio(-one.log + half),
        processes=one.processes,
        spread=one.spread,
        source=one.source,
        word=word,
        reason=found.reason or few,
        needed=needed,
    )


def _ratio(log: float) -> float:
    """e to the power of `log`, within what records hold: times of 1e15 µs and noise of that size do occur in files."""
    return math.exp(max(-_MOST, min(log, _MOST)))


def own_change(clock: str, a: Timed | None, b: Timed | None) -> ClockChange | None:
    """How the control itself changed: the machine is in it, so there is no verdict."""
    if a is None or b is None:
        return None
    sides = [difference.processes(each.rounds, None) for each in (a, b)]
    logs = [statistics.fmean(process.log for process in each) for each in sides if each]
    ratio = _ratio(logs[0] - logs[1]) if len(logs) == 2 else a.median / b.median
    return ClockChange(clock=clock, baseline_us=a.median, candidate_us=b.median, ratio=ratio)
