"""Checks the invariants between the parts of a record when a file is read."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion.records.choice import Choice, Point
from mlpfusion.records.profile import Clock, Kernel, Profile, Ratio, Row
from mlpfusion.records.traffic import Ceilings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROUNDING: Final = 1 + 1e-9  # of a percentile that is interpolated between equal samples


def broken(record: Any, where: str = "$") -> Iterator[str]:
    """Every invariant that does not hold in a record and all that is in it, with its place."""
    for said in _own(record):
        yield said.replace("at `.", f"at `{where}.") if "at `." in said else f"{said} - at `{where}`"
    if isinstance(record, msgspec.Struct):
        for name in record.__struct_fields__:
            yield from broken(getattr(record, name), f"{where}.{name}")
    elif isinstance(record, tuple) and record and not isinstance(record[0], int | float | str):
        for place, one in enumerate(record):
            yield from broken(one, f"{where}[{place}]")


def _own(record: Any) -> Iterator[str]:
    if isinstance(record, Clock):
        yield from _ascending(p20=record.p20, median=record.median, p80=record.p80)
    elif isinstance(record, Ratio):
        yield from _ascending(low=record.low, median=record.median, high=record.high)
    elif isinstance(record, Kernel):
        yield from _ascending(p20_us=record.p20_us, time_us=record.time_us, p80_us=record.p80_us)
    elif isinstance(record, Row):
        yield from _indices(record)
    elif isinstance(record, Profile):
        yield from _once("row", [row.backend for row in record.rows])
    elif isinstance(record, Ceilings):
        sizes = [copy.bytes for copy in record.copies]
        if any(one >= other for one, other in itertools.pairwise(sizes)):
            yield f"copies are not in the order of their sizes: {sizes}"
    elif isinstance(record, Choice):
        if not record.points:
            yield "there is no point in it"
        yield from _once("point", [f"{point.mode} {point.tokens}" for point in record.points])
    elif isinstance(record, Point):
        names = [one.backend for one in record.contenders]
        yield from _once("contender", names)
        for name in (record.chosen, record.winner, record.runner_up, *record.tied):
            if name is not None and name not in names:
                yield f"{name!r} is none of its contenders"


def _ascending(**values: float | None) -> Iterator[str]:
    known = [(name, value) for name, value in values.items() if value is not None]
    for (low, less), (high, more) in itertools.pairwise(known):
        if less > more * _ROUNDING:
            yield f"{low} {less} is above {high} {more}"


def _once(what: str, names: Sequence[str]) -> Iterator[str]:
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f"there are two {what}s {name!r}"


def _indices(row: Row) -> Iterator[str]:
    """Where a launch names a kernel or a value that its row does not have."""
    if row.traffic is None:
        return
    values = len(row.traffic.intermediates)
    for number, step in enumerate(row.traffic.steps):
        for field, last, what in (
            ("kernels", len(row.kernels), "kernels"),
            ("values_read", values, "intermediates"),
            ("values_written", values, "intermediates"),
        ):
            for index in getattr(step, field):
                if index >= last:
                    yield f"{index} where its row has {last} {what} - at `.traffic.steps[{number}].{field}`"
