"""Compares two jobs: each time over the ranks, and the same ranks of both."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from mlpfusion.records.job import JobDifference, JobTimeChange, RankChange
from mlpfusion.trace.words import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.job import Job, Rank


def diff_jobs(a: Job, b: Job, *, labels: tuple[str, str]) -> JobDifference:
    """How job `b` differs from `a`: medians over the ranks that are in both, and each such rank's call.

    Where the ranks of neither are known, or none is in both, the medians are over all ranks.
    """
    ours, theirs = ({rank.rank: rank for rank in job.ranks if rank.rank is not None and rank.times} for job in (a, b))
    both = sorted(ours.keys() & theirs.keys())
    sides = (
        ([ours[rank] for rank in both], [theirs[rank] for rank in both])
        if both
        else ([rank for rank in a.ranks if rank.times], [rank for rank in b.ranks if rank.times])
    )
    return JobDifference(
        a=labels[0],
        b=labels[1],
        a_devices=_devices(a),
        b_devices=_devices(b),
        a_ranks=len(a.ranks),
        b_ranks=len(b.ranks),
        times=tuple(_times(*sides)),
        ranks=tuple(RankChange(rank=rank, a_us=_call(ours[rank]), b_us=_call(theirs[rank])) for rank in both),
        reasons=tuple(_reasons(a, b, both)),
    )


def _devices(job: Job) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rank.gpu or ("CPU" if rank.device == "cpu" else "not known") for rank in job.ranks))


def _call(rank: Rank) -> float:
    return next(one.us for one in rank.times if one.name == "call")


def _times(a: list[Rank], b: list[Rank]) -> Iterable[JobTimeChange]:
    """The median of each time over the ranks, 0 for a rank that does not have it."""
    if not a or not b:
        return
    for name in dict.fromkeys(one.name for rank in (*a, *b) for one in rank.times):
        values = [[sum(one.us for one in rank.times if one.name == name) for rank in side] for side in (a, b)]
        if any(map(any, values)):
            yield JobTimeChange(name=name, a_us=median(values[0]), b_us=median(values[1]))


def _reasons(a: Job, b: Job, both: list[int]) -> Iterable[str]:
    """What is not compared."""
    if not both:
        yield "no rank is known in both: the medians are over all ranks of each"
    for name, job in (("a", a), ("b", b)):
        only = [rank.rank for rank in job.ranks if rank.rank is not None and rank.rank not in both]
        if both and only:
            yield f"only in {name}, or incomplete in one: ranks {numbers(only)}"
        bad = len(job.damaged) + len(job.left_out)
        if bad:
            yield f"{name}: {bad} files are damaged or left out, which `read` names"
    calls = [{rank.call for rank in job.ranks} for job in (a, b)]
    if calls[0] != calls[1]:
        shown = [", ".join(sorted(call or "the whole trace" for call in side)) for side in calls]
        yield f"other calls: {shown[0]} in a, {shown[1]} in b"
