"""Lists the kernels of each row of races: a line for each, with its role, what its name says, and its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.report.grid import decoded_text, kernel_time, shorten
from mlpfusion.report.table.model import Cell, Column, Group, Line, Table
from mlpfusion.report.table.rows import name_of, of_race
from mlpfusion.report.table.shapes import title, varying

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.table.model import Value
    from mlpfusion.report.table.shapes import Field
    from mlpfusion.stages.tabulate.races import Entry, Race

_COLUMNS = (
    Column("number", "#", right=True),
    Column("role", "role"),
    Column("kernel", "kernel"),
    Column("decoded", "decoded"),
    Column("time_us", "µs [p20–p80]", right=True),
)


def of_kernels(races: Sequence[Race]) -> list[Table]:
    """The table of all kernels in the order of execution, or none if no row has any."""
    fields = varying(races)
    groups = [
        Group(tuple(_lines(race, entry, fields))) for race in races for entry in race.entries if entry.row.kernels
    ]
    stub = [Column(field.key, field.head, field.right) for field in fields]
    columns = (*stub, Column("backend", "backend"), *_COLUMNS)
    return [Table(f"Kernels: {title(races)}", columns, tuple(groups))] if groups else []


def _lines(race: Race, entry: Entry, fields: Sequence[Field]) -> list[Line]:
    found = []
    stub = [Cell(str(field.value(race))) for field in fields]
    for index, kernel in enumerate(entry.row.kernels):
        said = (str(index + 1), kernel.role, shorten(kernel.name), decoded_text(kernel.decoded), kernel_time(kernel))
        values: dict[str, Value] = {
            **of_race(race),
            "backend": entry.name,
            "kind": entry.standing,
            "number": index + 1,
            "role": kernel.role,
            "kernel": kernel.name,
            "library": kernel.decoded.library,
            "tile": kernel.decoded.tile,
            "time_us": kernel.time_us,
            "time_us_p20": kernel.p20_us,
            "time_us_p80": kernel.p80_us,
        }
        found.append(Line((*stub, Cell(name_of(entry)), *map(Cell, said)), values, entry.standing))
    return found
