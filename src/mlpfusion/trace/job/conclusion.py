"""Concludes from the ranks of a job which is slow, in what, and who is late at collectives."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.trace.words import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.job import Job, Rank, RankSpread

# Ranks whose calls take this much alike take the same.
_ALIKE: Final = 0.02
# A rank is a straggler if the others wait for it for this part of a call, and for it far more than for others: most of
# all waits of few ranks, three times its part of those of many.
_LATE: Final = 0.01
_MOST: Final = 0.6
_TIMES: Final = 3
_LEAST: Final = 0.1
# What explains this part of a wait is named.
_EXPLAINS: Final = 0.5
_STRAGGLERS: Final = 3


def conclusions(job: Job) -> Iterable[str]:
    """Sentences with their numbers, the most important first."""
    by_name = {one.name: one for one in job.spreads}
    call = by_name.get("call")
    if call is None:
        return
    if len({rank for rank in job.ranks if rank.times}) > 1:
        yield _slowest(call)
    yield from _stragglers(job, call)
    exposed = by_name.get("communication")
    if exposed is not None and exposed.high >= _LATE * call.median:
        yield (
            f"communication while nothing else runs: {_of(exposed.low, call)} of a call on rank {exposed.low_rank} to "
            f"{_of(exposed.high, call)} on rank {exposed.high_rank}, median {units.microseconds(exposed.median)}"
        )


def _of(us: float, call: RankSpread) -> str:
    return f"{us / call.median:.0%}" if call.median else units.microseconds(us)


def _slowest(call: RankSpread) -> str:
    if call.high - call.low <= _ALIKE * call.median:
        return (
            f"all ranks take alike: {units.microseconds(call.median)} a call, within {_of(call.high - call.low, call)}"
        )
    factor = f" ({call.high / call.median:.2f}x)" if call.median else ""
    return (
        f"slowest is rank {call.high_rank}: {units.microseconds(call.high)} a call, the median "
        f"{units.microseconds(call.median)}{factor}"
    )


def _stragglers(job: Job, call: RankSpread) -> Iterable[str]:
    late = [(rank, rank.late) for rank in job.ranks if rank.late is not None]
    if len(late) < 2:
        return
    held = sum(one.held_us for _, one in late)
    enough = max(_LATE * call.median, min(_MOST, max(_TIMES / len(late), _LEAST)) * held)
    found = sorted(((rank, one) for rank, one in late if one.held_us >= enough > 0), key=lambda each: -each[1].held_us)
    for rank, one in found[:_STRAGGLERS]:
        yield (
            f"rank {_label(rank)} arrives last at {one.last} of {one.of} collectives: the first to arrive waits "
            f"{units.microseconds(one.held_us)} a call ({_of(one.held_us, call)}) for it{_why(job, rank, one.held_us)}"
        )
    if len(found) > _STRAGGLERS:
        yield f"late as well: ranks {numbers([_label(rank) for rank, _ in found[_STRAGGLERS:]])}"
    if not found:
        most = max(one.held_us for _, one in late)
        wait = f"{units.microseconds(most)} a call ({_of(most, call)})"
        yield f"no rank is late by itself: others wait for one at most {wait}"


def _label(rank: Rank) -> int | str:
    return rank.rank if rank.rank is not None else rank.source


def _why(job: Job, rank: Rank, held_us: float) -> str:
    """The kind of kernels that takes the rank longer than the others by most, if that explains the wait."""
    own = {one.name: one.us for one in rank.times if one.name.endswith(" kernels")}
    others = [{one.name: one.us for one in other.times} for other in job.ranks if other.times and other is not rank]
    more = {
        name: us - median(times.get(name, 0.0) for times in others)
        for name, us in own.items()
        if others and name != "communication kernels"
    }
    name = max(more, key=lambda name: more[name], default=None)
    if name is None:
        return ""
    if more[name] < _EXPLAINS * held_us:
        return "; its kernels take as long as those of others, so that it launches late"
    return f"; its {name} take {units.microseconds(more[name])} longer than the others' median"
