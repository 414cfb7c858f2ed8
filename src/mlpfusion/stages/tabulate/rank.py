"""Finds the fastest rows of a race: the one with the lowest median, and those that it is not known to beat."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlpfusion import stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Clock, Ratio
    from mlpfusion.stages.tabulate.races import Entry


class Ranked(NamedTuple):
    """The names of the rows that were ranked by one clock, and of those that share the first place."""

    among: frozenset[str] = frozenset()
    best: frozenset[str] = frozenset()


class _Timed(NamedTuple):
    """A row with the clock that it is ranked by."""

    name: str
    clock: Clock
    to_winner: Ratio | None


def rank(entries: Sequence[Entry], clock: str) -> Ranked:
    """The ranking of a race's measured rows by one clock; an empty one where fewer than two can be ranked.

    A row shares the first place unless the interval of its time over the fastest row's, round by round, lies above 1;
    where rounds cannot be paired, unless the two intervals relative to the baseline do not meet. A row with too few
    samples for a spread has no place, and none has one where the clock has two states of the L2 cache.
    """
    timed = [
        _Timed(each.name, found, each.to_winner)
        for each in entries
        if each.standing == "measured" and (found := getattr(each.row.clocks, clock, None)) and found.p20 is not None
    ]
    if len(timed) < 2 or len({each.clock.l2 for each in timed}) > 1:
        return Ranked()
    first = min(timed, key=lambda each: each.clock.median)
    best = [each.name for each in timed if each is first or not _is_slower(each, first)]
    return Ranked(frozenset(each.name for each in timed), frozenset(best))


def _is_slower(other: _Timed, first: _Timed) -> bool:
    """Whether a row is known to take longer than the fastest."""
    paired = stats.paired(other.clock, first.clock, first.name)
    if paired is None and other.to_winner is not None and other.to_winner.baseline == first.name:
        paired = other.to_winner
    if paired is not None:
        return paired.low > 1
    baseline = next((r.baseline for each in (other, first) if (r := each.clock.ratio_to_eager) is not None), None)
    low, high = _interval(other, baseline)[0], _interval(first, baseline)[1]
    return low is not None and high is not None and low > high


def _interval(row: _Timed, baseline: str | None) -> tuple[float, float] | tuple[None, None]:
    """The interval of a row's time over the baseline's, which of the baseline itself is 1."""
    if row.name == baseline:
        return 1.0, 1.0
    ratio = row.clock.ratio_to_eager
    return (None, None) if ratio is None or ratio.baseline != baseline else (ratio.low, ratio.high)
