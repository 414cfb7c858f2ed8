"""Checks the invariants between the parts of a record when a file is read."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion.records.choice import Choice, Point
from mlpfusion.records.clocks import Clock, Ratio
from mlpfusion.records.prediction import Foreseen, ForeseenPoint
from mlpfusion.records.profile import Kernel, Profile, Row
from mlpfusion.records.sweep.study import Study
from mlpfusion.records.traffic import Ceilings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The fields that are in the order of their values.
_ASCENDING: Final[dict[type, tuple[str, ...]]] = {
    Clock: ("p20", "median", "p80"),
    Ratio: ("low", "median", "high"),
    Kernel: ("p20_us", "time_us", "p80_us"),
    Foreseen: ("low_us", "predicted_us", "high_us"),
}
_ROUNDING: Final = 1 + 1e-9  # of a percentile that is interpolated between equal samples


def broken(record: Any, where: str = "$") -> Iterator[str]:
    """Every invariant that does not hold in a record and all that is in it, with its place."""
    if isinstance(record, Study):  # thousands of cells, and no clock in any
        return
    for said in _own(record):
        yield said.replace("at `.", f"at `{where}.") if "at `." in said else f"{said} - at `{where}`"
    if isinstance(record, msgspec.Struct):
        for name in record.__struct_fields__:
            yield from broken(getattr(record, name), f"{where}.{name}")
    elif isinstance(record, tuple) and record and not isinstance(record[0], int | float | str):
        for place, one in enumerate(record):
            yield from broken(one, f"{where}[{place}]")


def _own(record: Any) -> Iterator[str]:
    if type(record) in _ASCENDING:
        yield from _ascending(**{name: getattr(record, name) for name in _ASCENDING[type(record)]})
    if isinstance(record, Clock):
        yield from _of_its_samples(record)
    elif isinstance(record, Row):
        yield from _indices(record)
    elif isinstance(record, Profile):
        yield from _once("row", [row.backend for row in record.rows])
        yield from _of_its_processes(record)
        yield from _of_its_splits(record)
    elif isinstance(record, Ceilings):
        sizes = [copy.bytes for copy in record.copies]
        if any(one >= other for one, other in itertools.pairwise(sizes)):
            yield f"copies are not in the order of their sizes: {sizes}"
    elif isinstance(record, ForeseenPoint):
        yield from _once("backend", [one.backend for one in record.backends])
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


def _of_its_samples(clock: Clock) -> Iterator[str]:
    """Where a clock's figures are not those of the rounds that it keeps."""
    kept = sorted(clock.samples)
    if not clock.rounds:
        return
    if len(kept) != clock.n:
        yield f"n is {clock.n} where its rounds have {len(kept)} times"
        return
    left_out = sum(each.count(None) for each in clock.rounds)
    if left_out not in (
        0,
        clock.dropped,
    ):  # schema 1 has no place for what was dropped
        yield f"dropped is {clock.dropped} where its rounds leave out {left_out}"
    if not math.isclose(clock.median, statistics.median(kept), rel_tol=1e-9):
        yield f"median {clock.median} where that of its rounds is {statistics.median(kept)}"
    for name, value in (("p20", clock.p20), ("p80", clock.p80)):
        if value is not None and not kept[0] / _ROUNDING <= value <= kept[-1] * _ROUNDING:
            yield f"{name} {value} where its rounds are from {kept[0]} to {kept[-1]}"


def _of_its_processes(profile: Profile) -> Iterator[str]:
    """Where a clock has rounds of more or fewer processes than raced, or two backends other rounds of one process."""
    lengths: dict[int, int] = {}
    for place, row in enumerate(profile.rows):
        for name in ("wall_us", "event_us", "graph_us", "kernel_us") if row.clocks is not None else ():
            clock: Clock | None = getattr(row.clocks, name)
            if clock is None or not clock.rounds or (name == "kernel_us" and len(clock.rounds) == 1):
                continue  # a trace that qualified the row was no process of the race
            where = f"at `.rows[{place}].clocks.{name}.rounds"
            if len(clock.rounds) != len(profile.processes):
                yield f"{len(clock.rounds)} processes where {len(profile.processes)} raced - {where}`"
                continue
            for number, rounds in enumerate(clock.rounds if name != "kernel_us" and clock.is_paired else ()):
                if rounds and lengths.setdefault(number, len(rounds)) != len(rounds):
                    yield f"{len(rounds)} rounds where another clock has {lengths[number]} - {where}[{number}]`"


def _of_its_splits(profile: Profile) -> Iterator[str]:
    """Where the comparison with itself is of other rows or processes than there are, or has more alarms than splits."""
    names = {row.backend for row in profile.rows}
    for place, each in enumerate(profile.itself):
        where = f"at `.itself[{place}]"
        if each.backend not in names:
            yield f"there is no row {each.backend!r} - {where}.backend`"
        if each.processes > len(profile.processes):
            yield f"{each.processes} processes where {len(profile.processes)} raced - {where}.processes`"
        if each.alarms > each.splits:
            yield f"{each.alarms} false alarms in {each.splits} splits - {where}.alarms`"


def _once(what: str, names: Sequence[str]) -> Iterator[str]:
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f"there are two {what}s {name!r}"


def _indices(row: Row) -> Iterator[str]:
    """Where a row counts more kernels than it names, or a launch names a kernel or a value that it does not have."""
    if row.launches is not None and row.launches.kernels > len(row.kernels):
        yield f"{row.launches.kernels} where its row names {len(row.kernels)} - at `.launches.kernels`"
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
