"""Defines a table as every format of it renders it: columns, lines of cells, and the notes below."""

from __future__ import annotations

from typing import Literal

from mlpfusion.records.base import Record

Value = str | int | float | bool | None
Kind = Literal["measured", "emulated", "predicted", "failed", "unavailable", "mean", "fact"]


class Column(Record, frozen=True):
    """A column: its name for `--columns` and `--sort`, its heading, and whether it has numbers, aligned right."""

    key: str
    head: str
    right: bool = False


class Cell(Record, frozen=True):
    """What a reader sees, and whether it is marked as the best: alone, or as one of several that share the mark."""

    text: str
    best: bool = False


class Line(Record, frozen=True):
    """A line: one cell per column for readers, and the values in full precision for programs.

    `kind` is what its figures are: measured rows alone are ranked. A `mean` is over shapes.
    """

    cells: tuple[Cell, ...]
    data: dict[str, Value]
    kind: Kind = "fact"


class Group(Record, frozen=True):
    """Lines that belong together: the rows of one race, or the means over shapes."""

    lines: tuple[Line, ...]


class Table(Record, frozen=True):
    """A table with what it is of as its title, and notes of single lines."""

    title: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of all groups."""
        return tuple(line for group in self.groups for line in group.lines)


class Fact(Record, frozen=True):
    """One sentence of how the figures came to be, with its subject."""

    label: str
    text: str


class Document(Record, frozen=True):
    """Tables and the methods behind their figures. `caption` and `label` are the user's."""

    tables: tuple[Table, ...]
    methods: tuple[Fact, ...]
    caption: str | None = None
    label: str | None = None
