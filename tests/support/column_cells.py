"""What the columns of one set show of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.profile import Row
    from mlpfusion.report.profile.columns.column import Column, Value


def texts(columns: Iterable[Column], row: Row) -> dict[str, str]:
    """The text of each column by its key."""
    return {column.key: column.text(row) for column in columns}


def data(columns: Iterable[Column], row: Row) -> dict[str, Value]:
    """All values that programs get."""
    return {name: value for column in columns for name, value in column.data(row).items()}
