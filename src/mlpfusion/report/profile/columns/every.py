"""Every column of a profile's tables in their order, and its cell of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.report.profile.columns.clocks import CLOCKS
from mlpfusion.report.profile.columns.host import of_host
from mlpfusion.report.profile.columns.memory import of_memory
from mlpfusion.report.profile.columns.qualification import of_qualification
from mlpfusion.report.profile.columns.speed import BACKEND, of_speed
from mlpfusion.report.profile.columns.traffic import of_traffic
from mlpfusion.report.profile.row import tokens_of
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Collection

    from mlpfusion.records.profile import Row
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.profile.columns.column import Column


def all_columns(clock: ClockName = "event_us") -> tuple[Column, ...]:
    """Every column after `backend`, in the order of the tables; `clock` is the one that `speedup_vs_eager` shows."""
    return *of_speed(clock), *of_host(), *of_traffic(), *of_memory(), *of_qualification()


def is_shown(field: str, keys: Collection[str]) -> bool:
    """Whether any of the columns of these names shows a field of the record."""
    return any(field in column.of for column in all_columns() if column.key in keys)


def cell(column: Column, row: Row) -> str:
    """A row's cell as text; that of an emulated row says how many tokens ran, as the others ran all of the workload."""
    text = column.text(row)
    if not row.emulated or column.key in (BACKEND.key, "status"):
        return text
    if text == ABSENT:
        return f"emulated, {tokens_of(row)}" if column.key in (*CLOCKS, "speedup_vs_eager") else ABSENT
    return f"{text} ({tokens_of(row)})"
