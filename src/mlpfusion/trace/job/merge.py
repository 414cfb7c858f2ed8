"""Makes one record of the traces of a job: a line for each rank, spreads over ranks, who is late, what is missing."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from mlpfusion.records.job import Job, Rank, RankSpread, Refused
from mlpfusion.records.trace import Share
from mlpfusion.trace.findings.host import findings
from mlpfusion.trace.job.arrivals import lateness
from mlpfusion.trace.job.conclusion import conclusions
from mlpfusion.trace.job.ranks import Told, Untold
from mlpfusion.trace.words import counted, numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.trace import Reading
    from mlpfusion.trace.job.arrivals import Arrivals

_T = TypeVar("_T")
_NAMED: Final = 8
_MOST_MISSING: Final = 1_000_000


def job_of(found: Iterable[Told | Untold]) -> Job:
    """One record of the traces that are found, of which only a line each and their collectives' durations are kept."""
    read: list[tuple[Rank, Arrivals]] = []
    damaged: list[Refused] = []
    passed: list[Refused] = []
    for one in found:
        if isinstance(one, Untold):
            refused = Refused(source=one.source, rank=one.rank, reason=str(one.error))
            (damaged if one.damaged else passed).append(refused)
        else:
            read.append((_rank(one), one.arrivals))
    read.sort(key=lambda one: (one[0].rank is None, one[0].rank or 0))
    world = _most(rank.world_size for rank, _ in read)
    read, left = _one_each(read, world)
    late, other = lateness([lasting for _, lasting in read])
    ranks = [msgspec.structs.replace(rank, late=given) for (rank, _), given in zip(read, late, strict=True)]
    alike = _alike(ranks)
    whole = Job(
        ranks=tuple(ranks),
        world_size=world,
        backend=_most(rank.backend for rank in ranks),
        missing=tuple(_missing(ranks, damaged, world)),
        damaged=tuple(damaged),
        left_out=(*left, *passed),
        spreads=tuple(_spreads(alike)),
        collectives=max((one.of for one in late if one), default=0),
        notes=tuple(_notes(ranks, alike, [ranks[number] for number in other], world)),
    )
    return msgspec.structs.replace(whole, summary=tuple(conclusions(whole)))


def label(rank: Rank) -> int | str:
    """What to call a rank: its number, or the file where that is not known."""
    return rank.rank if rank.rank is not None else rank.source


def _rank(found: Told) -> Rank:
    reading, where = found.reading, found.place
    return Rank(
        source=reading.source,
        rank=where.rank,
        by=where.by,
        world_size=where.world_size,
        backend=where.backend,
        gpu=reading.gpu,
        device=reading.device,
        call=reading.call.name,
        calls=reading.analysis.calls,
        kernels=reading.analysis.launches.kernels,
        incomplete=reading.incomplete,
        times=() if reading.incomplete else tuple(_times(reading)),
        findings=tuple(one.id for one in findings(reading)),
    )


def _times(reading: Reading) -> Iterable[Share]:
    yield Share(name="call", us=reading.call_us)
    where = reading.breakdown
    if where is None:
        return
    if where.split is not None:
        for name in ("compute", "communication", "both", "idle"):
            yield Share(name=name, us=getattr(where.split, f"{name}_us"))
    for one in where.categories:
        yield Share(name=f"{one.category} kernels", us=one.us)


def _most(values: Iterable[_T | None]) -> _T | None:
    counts = Counter(value for value in values if value is not None)
    return max(counts, key=lambda value: counts[value]) if counts else None


def _one_each(
    ordered: Sequence[tuple[Rank, Arrivals]], world: int | None
) -> tuple[list[tuple[Rank, Arrivals]], list[Refused]]:
    """The first trace of each rank of the job, and those left out with the reason."""
    kept: list[tuple[Rank, Arrivals]] = []
    left: list[Refused] = []
    first: dict[int, str] = {}
    for rank, lasting in ordered:
        reason = None
        if rank.world_size is not None and world is not None and rank.world_size != world:
            reason = f"is of a job of {counted(rank.world_size, 'rank')}, most traces of one of {world}"
        elif rank.rank is not None and rank.rank in first:
            reason = f"is a second trace of rank {rank.rank}, which is read from {first[rank.rank]!r}"
        if reason is None:
            kept.append((rank, lasting))
            if rank.rank is not None:
                first[rank.rank] = rank.source
        else:
            left.append(Refused(source=rank.source, rank=rank.rank, reason=reason))
    return kept, left


def _missing(ranks: Sequence[Rank], damaged: Sequence[Refused], world: int | None) -> Iterable[int]:
    """The ranks without a trace: of the world, or of those up to the highest where its size is not known."""
    known = {rank.rank for rank in ranks if rank.rank is not None} | {
        one.rank for one in damaged if one.rank is not None
    }
    if any(rank.by == "device" for rank in ranks) or not known:
        return
    unknown = sum(rank.rank is None for rank in ranks) + sum(one.rank is None for one in damaged)
    size = world if world is not None else max(known) + 1
    if size > len(known) + unknown:
        yield from (number for number in range(min(size, _MOST_MISSING)) if number not in known)


def _alike(ranks: Sequence[Rank]) -> list[Rank]:
    """The ranks with times that ran the call that most did, on the kind of device that most had."""
    timed = [rank for rank in ranks if rank.times]
    usual = _most((rank.call or "", rank.device) for rank in timed)
    return [rank for rank in timed if (rank.call or "", rank.device) == usual]


def _spreads(ranks: Sequence[Rank]) -> Iterable[RankSpread]:
    """Each time that a rank has over all of them; one that a rank does not have is 0 for it."""
    names = list(dict.fromkeys(one.name for rank in ranks for one in rank.times if one.us))
    times = {name: [(us_of(rank, name), at) for at, rank in enumerate(ranks)] for name in names}
    kernels = [name for name in names if name.endswith(" kernels")]
    kernels.sort(key=lambda name: -median(us for us, _ in times[name]))
    for name in [*(name for name in names if name not in kernels), *kernels]:
        (low, lowest), (high, highest) = min(times[name]), max(times[name], key=lambda one: (one[0], -one[1]))
        yield RankSpread(
            name=name,
            low=low,
            low_rank=label(ranks[lowest]),
            median=median(us for us, _ in times[name]),
            high=high,
            high_rank=label(ranks[highest]),
        )


def us_of(rank: Rank, name: str) -> float:
    """One time of a rank in µs, 0 where it has none."""
    return next((one.us for one in rank.times if one.name == name), 0.0)


def _notes(ranks: Sequence[Rank], alike: Sequence[Rank], other: Sequence[Rank], world: int | None) -> Iterable[str]:
    """What differs between the ranks, a line each."""
    for noun, values in (
        ("device", {label(rank): rank.gpu or rank.device for rank in ranks}),
        ("backend", {label(rank): rank.backend for rank in ranks if rank.backend}),
        ("call", {label(rank): rank.call or "the whole trace" for rank in ranks}),
        ("number of kernels", {label(rank): str(rank.kernels) for rank in ranks}),
        ("number of calls", {label(rank): str(rank.calls) for rank in ranks if rank.times}),
    ):
        usual = _most(values.values())
        odd = [name for name, value in values.items() if value != usual]
        if odd:
            shown = sorted({str(values[name]) for name in odd})[:_NAMED]
            yield f"another {noun} ({', '.join(shown)}) than most ({usual}): {numbers(odd)}"
    apart = [label(rank) for rank in ranks if rank.times and rank not in alike]
    if apart:
        yield f"in no spread, since their calls are of another kind: {numbers(apart)}"
    if other:
        yield f"other collectives than most, which are not compared: {numbers([label(rank) for rank in other])}"
    beyond = [rank.rank for rank in ranks if rank.rank is not None and world is not None and rank.rank >= world]
    if beyond:
        yield f"not below the world size of {world}: {numbers(beyond)}"
    guessed = [label(rank) for rank in ranks if rank.by == "unknown"]
    if guessed:
        yield f"rank not known, neither from the trace nor from its name: {counted(len(guessed), 'trace')}"
