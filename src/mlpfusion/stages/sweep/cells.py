"""Makes a study's cells, their digests and names, and divides them into shards."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from mlpfusion.errors import UsageError
from mlpfusion.records.sweep.cells import Cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mlpfusion.records.sweep.cells import Settings, Work

_MOST_SHARDS: Final = 1_000_000
_LONGEST_NAME: Final = 120  # letters of a file's name before its digest; file systems take 255 bytes
_DIGITS: Final = 12  # hex digits of a digest in a file's name: 10,000 cells meet by chance once in 5 million studies


def product(work: Iterable[Work], gpus: Sequence[str]) -> tuple[Cell, ...]:
    """A cell for each workload and each kind of GPU."""
    return tuple(Cell(work=each, gpu=gpu) for each in work for gpu in gpus)


# ---- digests ---------------------------------------------------------------------------------------------------------


def definition_digest(settings: Settings, work: Iterable[Work]) -> str:
    """What a study is to measure: equal for all of its shards, on whatever machine, in whatever order it is written."""
    cells = sorted(_hex({"of": sorted(map(str, each.of)), **_asked(settings, each)}) for each in work)
    return _hex({"cells": cells, "gpus": sorted(settings.gpus) if settings.gpus else None})


def identity(settings: Settings, cell: Cell, versions: Mapping[str, str | None]) -> str:
    """What a cell's result is of: spec, workload, backends, rounds, processes, counters, versions and kind of GPU."""
    return _hex({"gpu": cell.gpu, "versions": dict(versions), **_asked(settings, cell.work)})


def _asked(settings: Settings, work: Work) -> dict[str, Any]:
    return {
        "workload": msgspec.to_builtins(work.workload),
        **asked_of_all(settings),
    }


def asked_of_all(settings: Settings) -> dict[str, Any]:
    """What of a study's settings its results depend on."""
    return {
        "backends": sorted(settings.backends),
        "rounds": settings.rounds,
        "processes": settings.processes,
        "counters": settings.counters,
    }


def _hex(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


# ---- names -----------------------------------------------------------------------------------------------------------


def file_name(cell: Cell, digest: str) -> str:
    """The name of a cell's result: what it is of in words, and the start of its digest."""
    work = cell.work.workload
    parts = (str(cell.work.of[0]), work.mode, f"{work.tokens}", work.spec.dtype, cell.gpu)
    words = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(parts)).strip("-.")
    return f"{words[:_LONGEST_NAME]}-{digest[:_DIGITS]}.json"


def title(cell: Cell) -> str:
    """A cell in a message: `gemma-2b, 256 tokens, bfloat16, inference, NVIDIA H200`."""
    work = cell.work.workload
    of = " and ".join(map(str, cell.work.of))
    return f"{of}, {work.tokens} token{'s' if work.tokens > 1 else ''}, {work.spec.dtype}, {work.mode}, {cell.gpu}"


# ---- shards ----------------------------------------------------------------------------------------------------------


class Shard(NamedTuple):
    """One part of a study, `number` from 1 to `parts`."""

    number: int
    parts: int

    def __str__(self) -> str:
        return f"{self.number}/{self.parts}"

    def has(self, settings: Settings, cell: Cell) -> bool:
        """Whether a cell falls to this shard.

        Every cell falls to one of them. Versions, and a kind of GPU that the study does not name, have no say: machines
        that differ in them agree on who measures what.
        """
        asked = {"gpu": cell.gpu if settings.gpus is not None else None, **_asked(settings, cell.work)}
        return int(_hex(asked), 16) % self.parts == self.number - 1


def shard(text: str, environment: Mapping[str, str] = os.environ) -> Shard:
    """The shard that `I/N` names, from 1/N to N/N; `auto` and `auto/N` read a Slurm array's or an indexed Job's index.

    A Slurm array tells its length, a Job does not: that needs `auto/N`.

    Raises:
        UsageError: it is no such text, I is not among the N, or this is no task of an array or a Job.
    """
    first, slash, last = text.partition("/")
    count = _whole(last) if slash else None
    if (slash and (count is None or not 1 <= count <= _MOST_SHARDS)) or (not slash and first != "auto"):
        raise UsageError(f"--shard must be I/N with N up to {_MOST_SHARDS}, auto or auto/N, got {text!r}")
    if first == "auto":
        return _auto(count, environment)
    number = _whole(first)
    if number is None or count is None or not 1 <= number <= count:
        raise UsageError(f"--shard {text!r}: I must be an integer from 1 to {count}, got {first!r}")
    return Shard(number, count)


def _auto(count: int | None, environment: Mapping[str, str]) -> Shard:
    def of(name: str) -> int | None:
        if name not in environment:
            return None
        value = _whole(environment[name])
        if value is None:
            raise UsageError(f"--shard auto: {name} must be an integer, got {environment[name]!r}")
        return value

    task, index = of("SLURM_ARRAY_TASK_ID"), of("JOB_COMPLETION_INDEX")
    if task is not None:
        name = "SLURM_ARRAY_TASK_ID"
        number = (task - (of("SLURM_ARRAY_TASK_MIN") or 0)) // (of("SLURM_ARRAY_TASK_STEP") or 1) + 1
        count = count if count is not None else of("SLURM_ARRAY_TASK_COUNT")
    elif index is not None:
        name, number = "JOB_COMPLETION_INDEX", index + 1
    else:
        raise UsageError("--shard auto needs SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX, and neither is set; give I/N")
    if not count:
        raise UsageError(f"--shard auto: {name} is set, but not how many there are; give auto/N")
    if not 1 <= number <= count:
        raise UsageError(f"--shard auto: {name} {number} of {count} is not among them; give auto/N with the right N")
    return Shard(number, count)


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
