"""Determines whose rank a trace is: from its distributedInfo, else from its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.trace.read.header import Facts

# Where a rank is from: the trace's distributedInfo, a word for it in the name, a bare number at the name's end, or the
# number of the only device that a process of a merged trace uses.
By: TypeAlias = Literal["trace", "name", "number", "device", "unknown"]

# `rank3`, `Rank_3`, `rank-03`, `tp0_pp0_rank3`, but no `local_rank3`, which repeats on each host.
_RANK: Final = re.compile(
    r"(?<!local)(?<!local[_.-])(?:(?<![A-Za-z])rank|Rank|RANK|(?<![A-Za-z])worker)[_=.-]?(\d{1,7})(?!\d)", re.ASCII
)
# SGLang names a trace by the dimensions of its parallelism that are above 1; only of one alone is it the rank.
_DIMENSION: Final = re.compile(r"(?:^|[-_.])(?:TP|DP|PP|EP|CP)[-_]?(\d{1,5})(?=[-_.]|$)", re.ASCII)
# `trace_3`, `trace.3`, `3`, where what stands before it does not count something else.
_NUMBER: Final = re.compile(r"(?:^|(?P<before>[A-Za-z\d]*)[_.-])(?P<rank>\d{1,5})$", re.ASCII)
_COUNTED: Final = re.compile(
    r"\d+|steps?|iter(?:ation)?s?|epochs?|batch|bs|seq|len|runs?|v|ver|version|layers?|tokens?|cycles?|window|try|test",
    re.IGNORECASE,
)
_SUFFIXES: Final = re.compile(r"(?:\.gz|\.json|\.trace|\.pt|\.chrome_trace)+$", re.IGNORECASE)
# `tensorboard_trace_handler` writes `WORKER.TIME.pt.trace.json`, by default with HOST_PID as the worker.
_HANDLER: Final = re.compile(r"\.\d{10,20}$")


class Place(NamedTuple):
    """The rank of a trace among those of its job, and what the trace says of that job; None is unknown."""

    rank: int | None = None
    by: By = "unknown"
    world_size: int | None = None
    backend: str | None = None


def place(facts: Facts, name: str) -> Place:
    """The place of a trace with these facts around its events, which is called `name`: a path with its last folders."""
    if facts.rank is not None:
        return Place(facts.rank, "trace", facts.world_size, facts.backend)
    rank, by = rank_in(name)
    return Place(rank, by, facts.world_size, facts.backend)


def rank_in(name: str) -> tuple[int | None, By]:
    """The rank that a file's name gives, or else its folder's."""
    parts = [part for part in re.split(r"[/\\]", name) if part]
    for part in reversed(parts[-2:]):
        found = _RANK.findall(part)
        if found:
            # Two that differ, as in `rank0_of_rank8`, leave it open.
            return (int(found[0]), "name") if len(set(map(int, found))) == 1 else (None, "unknown")
    stem = _SUFFIXES.sub("", parts[-1]) if parts else ""
    dimensions = _DIMENSION.findall(stem)
    if dimensions:
        return (int(dimensions[0]), "name") if len(dimensions) == 1 else (None, "unknown")
    number = None if _HANDLER.search(stem) else _NUMBER.search(stem)
    if number is not None and not _COUNTED.fullmatch(number["before"] or ""):
        return int(number["rank"]), "number"
    return None, "unknown"


def one_job(places: Iterable[Place]) -> bool:
    """Whether traces that were named one by one are ranks of one job: two different ranks are known.

    A bare number alone may count anything (`llama-2`, `llama-3`), and does only where one of them is 0.
    """
    known = [one for one in places if one.rank is not None]
    if any(one.by == "number" for one in known) and all(one.rank != 0 for one in known):
        known = [one for one in known if one.by != "number"]
    return len({one.rank for one in known}) > 1
