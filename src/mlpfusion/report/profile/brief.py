"""Picks the columns of the one table that is shown by default, as many as fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.report.grid import clipped, tabulated
from mlpfusion.report.profile.columns.every import all_columns, cell
from mlpfusion.report.profile.columns.speed import BACKEND
from mlpfusion.report.profile.legend import WIDTH
from mlpfusion.report.profile.row import verdict
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Row
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.profile.columns.column import Column

NAME_WIDTH: Final = 30


def ran(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows of backends that ran and were right, in Triton's interpreter too."""
    return tuple(row for row in rows if verdict(row)[0] in ("ok", "emulated"))


def brief(rows: Sequence[Row], clock: ClockName, *, github: bool) -> tuple[str, tuple[str, ...]]:
    """The table of the rows that ran, and the names of its columns: those that fit into `WIDTH` as plain text.

    Markdown has the same columns, though it is wider.
    """
    shown = ran(rows)
    chosen: list[Column] = []
    by_name = {column.key: column for column in all_columns(clock)}
    # What comes first is wanted most; the table keeps the order of `all_columns`.
    wanted: tuple[str, ...] = (
        clock,
        "speedup_vs_eager",
        "kernels",
        "graph_us",
        "error",
        "peak_bytes",
        "first_launch_us",
    )
    if all(by_name[clock].text(row) == ABSENT for row in shown):
        wanted = ("status", *wanted)
    for key in dict.fromkeys(wanted):
        column = by_name[key]
        if all(column.text(row) == ABSENT for row in shown):
            continue
        more = [each for each in by_name.values() if each in (*chosen, column)]
        if max(map(len, _table(shown, more, github=False).splitlines()), default=0) <= WIDTH:
            chosen = more
    return _table(shown, chosen, github=github), tuple(column.key for column in chosen)


def _table(rows: Sequence[Row], columns: Sequence[Column], *, github: bool) -> str:
    cells = [[clipped(row.backend, NAME_WIDTH), *(cell(column, row) for column in columns)] for row in rows]
    both = (BACKEND, *columns)
    return tabulated(cells, [column.head for column in both], [column.right for column in both], github=github)
