"""Adds the geometric means of speedups over shapes, a line for each backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlpfusion import units
from mlpfusion.report import speedup
from mlpfusion.report.profile.columns.clocks import clock_of
from mlpfusion.report.table.columns import SPEEDUP
from mlpfusion.report.table.model import Cell, Group, Line
from mlpfusion.report.table.shapes import FIELDS, kind_of, shape_of
from mlpfusion.stages.tabulate import means
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.profile.columns.column import Column as Shown
    from mlpfusion.report.table.model import Value
    from mlpfusion.report.table.shapes import Field
    from mlpfusion.stages.tabulate.means import Mean
    from mlpfusion.stages.tabulate.races import Entry, Race

Shape = tuple["Value", ...]


class Averaged(NamedTuple):
    """The means of the races that differ in their shapes alone: by backend, with those that share the first place.

    `twice` says that one shape is there twice, so that there is no mean.
    """

    races: tuple[Race, ...]
    means: dict[str, Mean]
    best: frozenset[str]
    twice: bool = False


def averaged(races: Sequence[Race], clock: ClockName, baseline: str) -> list[Averaged]:
    """The means of every kind of race that is there in two shapes or more."""
    kinds: dict[Shape, list[Race]] = {}
    for race in races:
        kinds.setdefault(kind_of(race), []).append(race)
    found = []
    for own in kinds.values():
        if len(own) < 2:
            continue
        twice = len({shape_of(race) for race in own}) < len(own)
        ratios = {} if twice else _speedups(own, clock, baseline)
        made = {name: mean for name, each in ratios.items() if (mean := means.geometric(list(each.values())))}
        best = means.best({name: each for name, each in ratios.items() if name in made})
        if made or twice:
            found.append(Averaged(tuple(own), made, best, twice))
    return found


def _speedups(races: Sequence[Race], clock: ClockName, baseline: str) -> dict[str, dict[Hashable, float]]:
    """A speedup per shape of every backend that has one; the baseline's is 1 wherever another has one."""
    found: dict[str, dict[Hashable, float]] = {}
    for race in races:
        ratios = {each.name: ratio for each in race.entries if (ratio := _speedup(each, clock)) is not None}
        if ratios and any(each.name == baseline and each.standing == "measured" for each in race.entries):
            ratios = {baseline: 1.0, **ratios}
        for name, ratio in ratios.items():
            found.setdefault(name, {})[shape_of(race)] = ratio
    return found


def _speedup(entry: Entry, clock: ClockName) -> float | None:
    read = clock_of(entry.row, clock)
    if entry.standing != "measured" or read is None or read.ratio_to_eager is None:
        return None
    return speedup.of(read.ratio_to_eager).median


def groups(
    races: Sequence[Race], fields: Sequence[Field], columns: Sequence[Shown], clock: ClockName, baseline: str
) -> list[Group]:
    """The lines of all means, a group for each kind of race."""
    return [
        Group(tuple(_line(found, name, fields, columns, baseline) for name in found.means))
        for found in averaged(races, clock, baseline)
    ]


def cell(found: Averaged, name: str, baseline: str) -> Cell:
    """A backend's mean for readers."""
    mean = found.means.get(name)
    if mean is None:
        return Cell(ABSENT)
    text = "baseline" if name == baseline else units.ratio(mean.value, mean.low, mean.high)
    return Cell(text, best=name in found.best)


def _line(found: Averaged, name: str, fields: Sequence[Field], columns: Sequence[Shown], baseline: str) -> Line:
    mean = found.means[name]
    stub, said = [], False
    for field in fields:
        if not field.of_shape and field.key != "file":
            stub.append(Cell(str(field.value(found.races[0]))))
        else:
            stub.append(Cell("" if said else f"mean of {mean.shapes}"))
            said = True
    cells = [cell(found, name, baseline) if column.key == SPEEDUP else Cell("") for column in columns]
    shared = {field.key: field.value(found.races[0]) for field in FIELDS if not field.of_shape and field.key != "file"}
    values: dict[str, Value] = {
        **shared,
        "backend": name,
        "kind": "mean",
        "shapes": mean.shapes,
        SPEEDUP: mean.value,
        f"{SPEEDUP}_low": mean.low,
        f"{SPEEDUP}_high": mean.high,
        f"{SPEEDUP}_confidence": means.CONFIDENCE,
        f"{SPEEDUP}_best": name in found.best if found.best else None,
        "baseline": baseline,
    }
    return Line((*stub, Cell(name), *cells), values, "mean")
