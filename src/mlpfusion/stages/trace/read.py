"""Reads what a verb's arguments name: a trace, the ranks of a job, or several of both."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from mlpfusion import limits
from mlpfusion.errors import UsageError
from mlpfusion.records.job import Job
from mlpfusion.storage import inputs
from mlpfusion.trace.job.merge import job_of
from mlpfusion.trace.job.place import Place, one_job, place, rank_in
from mlpfusion.trace.job.ranks import Told, Untold, read_ranks
from mlpfusion.trace.job.sources import sources
from mlpfusion.trace.read import kineto
from mlpfusion.trace.read.source import MAX_BYTES
from mlpfusion.trace.words import numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mlpfusion.device import DeviceKind
    from mlpfusion.records.trace import Reading


def results(
    arguments: Sequence[str],
    *,
    rank: int | None = None,
    call: str | None = None,
    device: DeviceKind | None = None,
    max_bytes: int = MAX_BYTES,
) -> Iterator[Told | Untold | Job]:
    """What the arguments name, in their order: a trace alone, a job of several, or why one says nothing.

    A directory or a pattern is one job, as are files of different ranks; else each file is one by itself, a job where
    it holds several traces. With `rank` each trace of that rank comes alone.

    Raises:
        UsageError: a directory or a pattern holds no trace, a file is given twice, or no trace is of that rank.
    """
    names, together = sources(arguments)

    def ranks(name: str) -> Iterator[Told | Untold]:
        return read_ranks(name, call=call, device=device, max_bytes=max_bytes, rank=rank)

    if rank is not None:
        yield from _of_rank(rank, [*chain.from_iterable(map(ranks, names))], names)
    elif together or _one_job(names):
        yield from _one_or_job(chain.from_iterable(map(ranks, names)))
    else:
        for name in names:
            yield from _one_or_job(ranks(name))


def read_job(
    *arguments: str | Path, call: str | None = None, device: DeviceKind | None = None, max_bytes: int = MAX_BYTES
) -> Job:
    """The traces that the arguments name (files, archives, directories, patterns) as the ranks of one job.

    Raises:
        UsageError: `max_bytes` is out of range, a directory or a pattern holds no trace, or a file is given twice.
        MlpfusionError: none of the files can be read.
    """
    limits.whole("max_bytes", max_bytes, limits.BYTES)
    names = sources([str(one) for one in arguments]).names
    found = chain.from_iterable(read_ranks(name, call=call, device=device, max_bytes=max_bytes) for name in names)
    made = job_of(_traces_first(found))
    if not made.ranks:
        refused = [*made.damaged, *made.left_out]
        raise UsageError(refused[0].reason if refused else "no trace is given")
    return made


def one_of_job(
    argument: str,
    rank: int | None,
    *,
    call: str | None = None,
    device: DeviceKind | None = None,
    max_bytes: int = MAX_BYTES,
) -> Reading | Job:
    """The reading of the one trace that an argument names, or of its rank, or else its job.

    Raises:
        MlpfusionError: there is no such trace, none of that rank, or several of it.
    """
    options = {"call": call, "device": device, "max_bytes": max_bytes}
    found = list(results([argument], rank=rank, **options))  # type: ignore[arg-type]
    told = [one.reading for one in found if isinstance(one, Told)]
    jobs = [one for one in found if isinstance(one, Job) and one.ranks]
    if len(told) > 1:
        raise UsageError(f"{argument!r} has {len(told)} traces of rank {rank}; name a file")
    if told or jobs:
        return told[0] if told else jobs[0]
    failed = next((one.error for one in found if isinstance(one, Untold)), None)
    raise failed or UsageError(f"none of the traces in {argument!r} can be read")


def _one_or_job(found: Iterator[Told | Untold]) -> Iterator[Told | Untold | Job]:
    """A single trace, or the job of several; files that are no trace count only where there is nothing else."""
    ordered = _traces_first(found)
    first, second = next(ordered, None), next(ordered, None)
    if first is None:
        return
    if second is None or (isinstance(second, Untold) and not second.damaged):
        yield first
    else:
        yield job_of(chain((first, second), ordered))


def _traces_first(found: Iterator[Told | Untold]) -> Iterator[Told | Untold]:
    """What is found, other JSON than traces at the end."""
    others: list[Untold] = []
    for one in found:
        if isinstance(one, Untold) and not one.damaged:
            others.append(one)
        else:
            yield one
    yield from others


def _one_job(names: Sequence[str]) -> bool:
    """Whether single files are ranks of one job, by their names, or by what is before their events."""
    if len(names) < 2:
        return False
    return one_job(Place(*rank_in(name)) for name in names) or one_job(
        place(kineto.head(name), name) for name in names if name != inputs.STDIN
    )


def _of_rank(rank: int, found: Sequence[Told | Untold], names: Sequence[str]) -> Iterator[Told | Untold]:
    """The traces of one rank, and the files of which that cannot be known."""
    yield from (one for one in found if isinstance(one, Told) or one.rank in (None, rank))
    if not any(isinstance(one, Told) for one in found):
        known = {where.rank for where in (place(kineto.head(name), name) for name in names) if where.rank is not None}
        there = f"there are {numbers(sorted(known))}" if known else "no rank is known of any"
        raise UsageError(f"no trace is of rank {rank}; {there}")
