"""Renders tables as CSV or JSON: all values in full precision."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from mlpfusion.report.grid import csv_text
from mlpfusion.storage.letters import escaped

if TYPE_CHECKING:
    from mlpfusion.report.table.model import Document, Line, Table, Value


def csv(found: Document) -> str:
    """A header and a line for each line, for each table; several are parted by an empty line.

    A mean over shapes is a line of `kind` mean, without what it is a mean over.
    """
    return "\n".join(csv_text(_with_all_keys(table.lines)) for table in found.tables)


def _with_all_keys(lines: tuple[Line, ...]) -> list[dict[str, Value]]:
    keys = list(dict.fromkeys(key for line in lines for key in line.data))
    return [{key: line.data.get(key) for key in keys} for line in lines]


def json_text(found: Document) -> str:
    """The tables with their lines as objects, the notes, and the methods; ends with a newline."""
    document = {
        "tables": [_plain(table) for table in found.tables],
        "methods": [{"label": fact.label, "text": fact.text} for fact in found.methods],
    }
    return escaped(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _plain(table: Table) -> dict[str, object]:
    return {
        "title": table.title,
        "columns": [msgspec.to_builtins(column) for column in table.columns],
        "rows": [line.data for line in table.lines],
        "notes": table.notes,
    }
