"""Lays one column of races out with backends down and shapes across, as papers print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlpfusion.report.profile.columns.speed import BACKEND
from mlpfusion.report.table import averages
from mlpfusion.report.table.columns import SPEEDUP, data, text
from mlpfusion.report.table.model import Cell, Column, Group, Line, Table
from mlpfusion.report.table.rows import marks, name_of
from mlpfusion.report.table.shapes import title, varying
from mlpfusion.stages.tabulate.rank import Ranked
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.profile.columns.column import Column as Shown
    from mlpfusion.report.table.averages import Averaged
    from mlpfusion.report.table.model import Kind, Value
    from mlpfusion.report.table.shapes import Field
    from mlpfusion.stages.tabulate.races import Entry, Race


class _Place(NamedTuple):
    """One column: its heading, and a cell with its values by the name of a line."""

    head: str
    cells: dict[str, Cell]
    values: dict[str, dict[str, Value]]


def laid_out(races: Sequence[Race], shown: Shown, clock: ClockName, baseline: str) -> Table:
    """The table of one column: a line for each backend, a column for each race, and one for each mean over shapes."""
    fields = varying(races)
    averaged = averages.averaged(races, clock, baseline) if shown.key == SPEEDUP else []
    places = []
    for race in races:
        places.append(_of_race(race, fields, shown, clock))
        # A mean stands behind the last of the races that it is over.
        places += [_of_mean(each, fields, baseline) for each in averaged if each.means and each.races[-1] is race]
    kinds: dict[str, Kind] = {}
    for each in (each for race in races for each in race.entries):
        if kinds.get(name_of(each)) != "measured":
            kinds[name_of(each)] = each.standing
    lines = []
    for name, kind in kinds.items():
        cells = [place.cells.get(name, Cell(ABSENT)) for place in places]
        values = {
            f"{place.head} / {key}": value for place in places for key, value in place.values.get(name, {}).items()
        }
        lines.append(Line((Cell(name), *cells), {"backend": name, "kind": kind, **values}, kind))
    columns = (Column(BACKEND.key, BACKEND.head), *(Column(place.head, place.head, right=True) for place in places))
    return Table(f"{shown.head}: {title(races)}", columns, (Group(_with_all_keys(lines)),))


def _of_race(race: Race, fields: Sequence[Field], shown: Shown, clock: ClockName) -> _Place:
    ranked = marks(race.entries, [shown], clock).get(shown.key, Ranked())
    head = ", ".join(_named(field, race) for field in fields) or f"{race.work.tokens} tokens"
    cells = {name_of(each): Cell(_said(shown, each), each.name in ranked.best) for each in race.entries}
    values = {
        name_of(each): {
            **data(shown, each),
            "best": each.name in ranked.best if each.name in ranked.among else None,
        }
        for each in race.entries
    }
    return _Place(head, cells, values)


def _of_mean(found: Averaged, fields: Sequence[Field], baseline: str) -> _Place:
    kind = [_named(field, found.races[0]) for field in fields if not field.of_shape and field.key != "file"]
    shapes = sorted({mean.shapes for mean in found.means.values()})
    head = ", ".join([*kind, f"mean of {'–'.join(map(str, shapes[:: max(len(shapes) - 1, 1)]))}"])
    cells = {name: averages.cell(found, name, baseline) for name in found.means}
    values: dict[str, dict[str, Value]] = {
        name: {
            SPEEDUP: mean.value,
            f"{SPEEDUP}_low": mean.low,
            f"{SPEEDUP}_high": mean.high,
            "shapes": mean.shapes,
            "best": name in found.best if found.best else None,
        }
        for name, mean in found.means.items()
    }
    return _Place(head, cells, values)


def _named(field: Field, race: Race) -> str:
    """A value as a part of a heading: sizes need their names."""
    value = str(field.value(race))
    if field.key == "tokens":
        return f"{value} token{'s' * (value != '1')}"
    return f"{field.head} {value}" if field.right or field.key == "bias" else value


def _said(shown: Shown, entry: Entry) -> str:
    """A cell, or the word for a row that has none since it did not run: there is no column of its own for that."""
    found = text(shown, entry)
    return entry.standing if found == ABSENT and entry.standing in ("failed", "unavailable") else found


def _with_all_keys(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines with the values of one another's names, as CSV needs them."""
    keys = dict.fromkeys(key for line in lines for key in line.data)
    return tuple(Line(line.cells, {key: line.data.get(key) for key in keys}, line.kind) for line in lines)
