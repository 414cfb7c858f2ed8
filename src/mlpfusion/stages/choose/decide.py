"""Decides the winner at each measured token count, why the others lost, and the ranges between."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from mlpfusion import units
from mlpfusion.records.choice import Contender, Phase, Point, Range
from mlpfusion.records.profile import BASELINE
from mlpfusion.stats import paired

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlpfusion.records.choice import ClockName
    from mlpfusion.records.clocks import Clock, Ratio
    from mlpfusion.records.profile import Row
    from mlpfusion.spec import Mode, Workload

# What wins a tie that it is in: nothing is gained by another, and it takes every module.
# A decoding step has one token for each sequence of the batch, a prompt rarely as few as this.
DECODE_TOKENS: Final = 64


class Measured(Protocol):
    """Rows of one workload that were raced together."""

    @property
    def workload(self) -> Workload:
        """What they ran."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """One for each backend."""


def disqualified(profiles: Sequence[Measured]) -> dict[str, str]:
    """Backends that are wrong for some number of tokens, with where and why: they are chosen for none.

    This is the place for any judge of correctness; a row's own is the error against fp64 relative to eager's.
    """
    found: dict[str, str] = {}
    for profile in profiles:
        for row in profile.rows:
            accuracy = row.accuracy
            if accuracy is not None and accuracy.ratio > accuracy.limit:
                where = f"{profile.workload.mode}, {profile.workload.tokens} tokens"
                found.setdefault(row.backend, f"wrong at {where}: {row.reason}")
    return found


# ---- one number of tokens --------------------------------------------------------------------------------------------


def point(profile: Measured, clock: ClockName, wrong: Mapping[str, str]) -> Point:
    """The winner of one profile by one clock, and what became of every other backend in it."""
    mode, tokens = profile.workload.mode, profile.workload.tokens
    timed = {row.backend: found for row in profile.rows if (found := _timed(row, clock, wrong)) is not None}
    shares = [row.clocks.neighbours for row in profile.rows if row.clocks and row.clocks.neighbours is not None]
    neighbours = max(shares, default=None)
    if not timed:
        contenders = tuple(_left_out(row, clock, wrong) for row in profile.rows)
        return Point(
            mode=mode,
            tokens=tokens,
            chosen=None,
            winner=None,
            runner_up=None,
            tied=(),
            contenders=contenders,
            reason=f"no backend that is right has a time by {clock}",
            neighbours=neighbours,
        )
    ranked = sorted(timed, key=lambda name: timed[name].median)
    winner = ranked[0]
    ratios = {name: paired(timed[name], timed[winner], winner) for name in ranked[1:]}
    tied = tuple(name for name, ratio in ratios.items() if ratio is None or ratio.low <= 1)
    rows = {row.backend: row for row in profile.rows}
    contenders = tuple(
        _contender(row, timed[row.backend], ratios.get(row.backend), rows[winner], tied=row.backend in tied)
        if row.backend in timed
        else _left_out(row, clock, wrong)
        for row in profile.rows
    )
    return Point(
        mode=mode,
        tokens=tokens,
        chosen=BASELINE if BASELINE in tied else winner,
        winner=winner,
        runner_up=ranked[1] if len(ranked) > 1 else None,
        tied=tied,
        contenders=contenders,
        neighbours=neighbours,
    )


def _timed(row: Row, clock: ClockName, wrong: Mapping[str, str]) -> Clock | None:
    """The clock of a row that may win, or None. A clock whose rounds are unknown cannot be paired."""
    found: Clock | None = getattr(row.clocks, clock, None)
    fit = row.status == "ok" and not row.emulated and row.backend not in wrong
    return found if fit and found is not None and found.is_paired else None


def _contender(row: Row, clock: Clock, ratio: Ratio | None, winner: Row, *, tied: bool) -> Contender:
    won = row.backend == winner.backend
    return Contender(
        backend=row.backend,
        verdict="won" if won else "tied" if tied else "slower",
        reason=None if won else "within the noise" if tied else _why_slower(row, winner),
        clock=replace(clock, rounds=(), ratio_to_eager=None),
        ratio=ratio,
        memory=row.memory,
    )


def _why_slower(row: Row, winner: Row) -> str:
    """What of a slower row is more than the winner's: host time, kernels, bytes."""
    said = []
    if row.bound is not None and row.bound.by == "cpu":
        said.append(f"bound by the host, which takes {units.times(row.bound.margin)} the device's time")
    if row.launches is not None and winner.launches is not None and row.launches.kernels > winner.launches.kernels:
        said.append(f"{row.launches.kernels} kernels against {winner.launches.kernels}")
    mine, theirs = (each.traffic.derived_bytes if each.traffic is not None else None for each in (row, winner))
    if mine is not None and theirs is not None and mine > theirs:
        said.append(f"moves {units.megabytes(mine)} against {units.megabytes(theirs)}")
    return ", ".join(said) or "slower with no more kernels or bytes"


def _left_out(row: Row, clock: ClockName, wrong: Mapping[str, str]) -> Contender:
    if row.status == "unavailable":
        return Contender(backend=row.backend, verdict="unavailable", reason=row.reason)
    if row.status == "failed" or row.backend in wrong:
        return Contender(backend=row.backend, verdict="failed", reason=wrong.get(row.backend) or row.reason)
    reason = row.reason if row.emulated else (row.clocks.reasons.get(clock) if row.clocks else None)
    return Contender(
        backend=row.backend, verdict="untimed", reason=reason or f"no whole series of {clock}", memory=row.memory
    )


# ---- ranges ----------------------------------------------------------------------------------------------------------


def ranges(points: Sequence[Point]) -> tuple[Range, ...]:
    """The points as ranges without gaps, but around a point where nothing could be chosen.

    Neighbours with one backend are one range. Between two backends the end is where their times, drawn as straight
    lines on logarithmic scales, cross. The first range starts at 1 and the last one has no end.
    """
    found: list[Range] = []
    for mode in dict.fromkeys(each.mode for each in points):
        found += _of_mode(mode, sorted((each for each in points if each.mode == mode), key=lambda each: each.tokens))
    return tuple(found)


def _of_mode(mode: Mode, points: Sequence[Point]) -> list[Range]:
    runs: list[list[Point]] = []
    for each in points:
        if runs and runs[-1][-1].chosen == each.chosen:
            runs[-1].append(each)
        else:
            runs.append([each])
    found, first = [], 1
    for place, run in enumerate(runs):
        following = runs[place + 1][0] if place + 1 < len(runs) else None
        last = None if following is None else _edge(run[-1], following)
        if run[0].chosen is not None:
            found.append(
                Range(
                    mode=mode,
                    first=first,
                    last=last,
                    backend=run[0].chosen,
                    phase=_phase(mode, first, last),
                    measured=tuple(each.tokens for each in run),
                    tie=any(each.tied for each in run),
                )
            )
        first = 1 if last is None else last + 1
    return found


def _edge(here: Point, there: Point) -> int:
    """The last number of tokens for which `here`'s backend is the one to take."""
    a, b = here.chosen, there.chosen
    at_here, at_there = _log_ratio(here, a, b), _log_ratio(there, a, b)
    share = 0.5  # of the way, on a logarithmic scale: where the times say nothing
    if at_here is not None and at_there is not None and at_here <= 0 <= at_there and at_here < at_there:
        share = at_here / (at_here - at_there)
    edge = math.floor(here.tokens * math.pow(there.tokens / here.tokens, share))
    return min(max(edge, here.tokens), there.tokens - 1)


def _log_ratio(at: Point, a: str | None, b: str | None) -> float | None:
    """The logarithm of a's time over b's, or None where one of them has no time."""
    clocks = {each.backend: each.clock for each in at.contenders}
    one, other = clocks.get(a or ""), clocks.get(b or "")
    return None if one is None or other is None else math.log(one.median / other.median)


def _phase(mode: Mode, first: int, last: int | None) -> Phase:
    if mode == "training":
        return "training"
    if last is not None and last <= DECODE_TOKENS:
        return "decode"
    return "prefill" if first > DECODE_TOKENS else "decode and prefill"
