"""Lays out what each row of races has several of: a line for each, below what tells the rows apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlpfusion.report.table.model import Cell, Column, Group, Line, Table
from mlpfusion.report.table.rows import name_of, of_race
from mlpfusion.report.table.shapes import title, varying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mlpfusion.records.profile import Row
    from mlpfusion.report.table.model import Value
    from mlpfusion.stages.tabulate.races import Race


class Part(NamedTuple):
    """One of what a row has several of: a text for each column, and values by name in full precision."""

    texts: tuple[str, ...]
    values: dict[str, Value]


class Detail(NamedTuple):
    """A kind of what rows have several of: what heads its table, its columns, and those of one row."""

    title: str
    columns: tuple[Column, ...]
    of: Callable[[Row], Iterator[Part]]


def table(detail: Detail, races: Sequence[Race]) -> list[Table]:
    """The table of all races, a group for each row, or none if no row has any."""
    fields = varying(races)
    groups = []
    for race in races:
        stub = [Cell(str(field.value(race))) for field in fields]
        for entry in race.entries:
            shared = {**of_race(race), "backend": entry.name, "kind": entry.standing}
            first = (*stub, Cell(name_of(entry)))
            lines = [
                Line((*first, *map(Cell, part.texts)), {**shared, **part.values}, entry.standing)
                for part in detail.of(entry.row)
            ]
            groups += [Group(tuple(lines))] if lines else []
    heads = [Column(field.key, field.head, field.right) for field in fields]
    columns = (*heads, Column("backend", "backend"), *detail.columns)
    return [Table(f"{detail.title}: {title(races)}", columns, tuple(groups))] if groups else []
