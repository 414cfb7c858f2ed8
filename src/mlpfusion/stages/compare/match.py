"""Matches the rows of two sides by workload and backend."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mlpfusion.errors import UsageError
from mlpfusion.spec import MLPSpec
from mlpfusion.storage import files, inputs

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from mlpfusion.stages.compare.subjects import Group, Source


class Pair(NamedTuple):
    """Two groups of one workload, and the names of their rows that are compared. `relaxed`: their dtypes differ."""

    baseline: Group
    candidate: Group
    rows: tuple[tuple[str, str], ...]
    relaxed: bool = False

    @property
    def together(self) -> bool:
        """Whether both are of one file, and so of the same processes."""
        return self.baseline is self.candidate or _same_file(self.baseline.file, self.candidate.file)


def check_sides(a: Source, b: Source) -> None:
    """Raise a UsageError if a file is compared with itself, or stdin is needed twice."""
    first, second = (each.name.removesuffix(f":{each.row}") if each.row else each.name for each in (a, b))
    same = _same_file(first, second) or bool(_files(a) & _files(b))
    if same and (a.row == b.row or None in (a.row, b.row)):
        raise UsageError(
            f"{a.name!r} and {b.name!r} are the same; name two files, two rows of one (as FILE:triton FILE:fused), "
            "or --self for its processes against each other"
        )


def check_whole(group: Group) -> None:
    """Raise a UsageError if a group's file contradicts itself."""
    if group.damage is not None:
        raise UsageError(group.damage)


def _files(side: Source) -> set[str]:
    """What the groups of a side were read from: two folders may share a file."""
    return {os.path.realpath(file) for file in {group.file for group in side.groups} if not inputs.is_stdin(file)}


def _same_file(a: str, b: str) -> bool:
    if inputs.is_stdin(a) or inputs.is_stdin(b):
        return a == b
    return files.is_same(Path(a), Path(b))


def pairs(a: Source, b: Source) -> tuple[Pair, ...]:
    """The groups of both sides with rows in common, in the baseline's order.

    Raises:
        UsageError: there is none; sizes, activation, tokens and mode must be the same.
    """
    found = tuple(_pairs(a, b))
    if not any(pair.rows for pair in found):
        what = "row" if found else "workload"
        raise UsageError(f"no {what} is in both: {_listed(a, rows=bool(found))}; {_listed(b, rows=bool(found))}")
    return tuple(pair for pair in found if pair.rows)


def _pairs(a: Source, b: Source) -> Iterator[Pair]:
    for one in a.groups:
        alike = [other for other in b.groups if other.key == one.key]
        relaxed = not alike
        if relaxed:
            taken = {other.key for other in a.groups}  # each has a partner of its own dtype
            free = [other for other in b.groups if other.key not in taken]
            near = [other for other in free if _without_dtype(other.key) == _without_dtype(one.key)]
            alike = near if len({other.key for other in near}) == 1 else []
        mine = [each for each in a.groups if each.key == one.key]
        if any(len({each.device for each in side}) > 1 for side in (mine, alike)):
            alike = [other for other in alike if other.device == one.device]
        for other in alike:
            yield Pair(one, other, tuple(_rows(one, a.row, other, b.row)), relaxed)


def _rows(a: Group, row_a: str | None, b: Group, row_b: str | None) -> Iterator[tuple[str, str]]:
    """The names that are compared: those named, else those in both."""
    if row_a is None and row_b is None:
        yield from ((name, name) for name in a.rows if name in b.rows)
    else:
        first, second = row_a or row_b, row_b or row_a
        if first in a.rows and second in b.rows and first is not None and second is not None:
            yield first, second


def _without_dtype(key: Hashable) -> Hashable:
    """A key whose spec is of one dtype."""
    if not isinstance(key, tuple):
        return key
    return tuple(msgspec.structs.replace(part, dtype="bfloat16") if isinstance(part, MLPSpec) else part for part in key)


def _listed(side: Source, *, rows: bool) -> str:
    """The workloads of a side, or the rows of its first."""
    if rows:
        return f"{side.name!r} has {', '.join([side.row] if side.row else side.groups[0].rows) or 'no row'}"
    titles = list(dict.fromkeys(group.title for group in side.groups))
    more = f" and {len(titles) - 2} more" if len(titles) > 2 else ""
    return f"{side.name!r} has {'; '.join(titles[:2])}{more}"


def left_over(a: Source, b: Source, found: tuple[Pair, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rows that only one side has, each with its workload; none where rows were named."""
    if a.row is not None or b.row is not None:
        return (), ()
    single = len({group.key for side in (a, b) for group in side.groups}) == 1
    used = [{(id(pair[side]), names[side]) for pair in found for names in pair.rows} for side in (0, 1)]
    only = [
        tuple(
            name if single else f"{name} ({group.title})"
            for group in each.groups
            for name in group.rows
            if (id(group), name) not in used[side]
        )
        for side, each in enumerate((a, b))
    ]
    return only[0], only[1]
