"""Renders tables as one HTML page that needs nothing else: no script, no network, one style that its policy names."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import TYPE_CHECKING, Final

from mlpfusion.report.grid import middle_out
from mlpfusion.report.table.formats.text import cells_of
from mlpfusion.storage.letters import printable

if TYPE_CHECKING:
    from mlpfusion.report.table.model import Cell, Column, Document, Table

_NAME_WIDTH: Final = 96
_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 1rem auto; max-width: 75rem; padding: 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { font-weight: bold; padding: .5rem 0; text-align: left; }
th, td { padding: .2rem .6rem; text-align: left; vertical-align: baseline; white-space: nowrap; }
.n { text-align: right; }
thead { border-bottom: 2px solid; }
tbody { border-bottom: 1px solid; }
dt { font-weight: bold; }
dd { margin: 0 0 .3rem; overflow-wrap: anywhere; }
"""


def render(found: Document) -> str:
    """The document as a page; ends with a newline."""
    name = found.caption if found.caption is not None else next((t.title for t in found.tables), "no rows")
    policy = f"default-src 'none'; style-src 'sha256-{_digest(_STYLE)}'"
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(name)}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        *(
            part
            for number, table in enumerate(found.tables)
            for part in [
                '<div class="scroll">',
                html_table(table, found.caption if number == 0 else None),
                "</div>",
                *_listed(table.notes),
            ]
        ),
        *_methods(found),
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def html_table(table: Table, caption: str | None = None) -> str:
    """A table as one element; its caption is the title unless another is given."""
    head = "".join(f'<th scope="col"{_side(column)}>{_text(column.head)}</th>' for column in table.columns)
    bodies = [
        "<tbody>\n" + "\n".join(_row(cells, table.columns) for cells in cells_of(group, table)) + "\n</tbody>"
        for group in table.groups
    ]
    parts = [
        "<table>",
        f"<caption>{_text(table.title if caption is None else caption)}</caption>",
        f"<thead><tr>{head}</tr></thead>",
        *bodies,
        "</table>",
    ]
    return "\n".join(parts)


def _row(cells: list[Cell], columns: tuple[Column, ...]) -> str:
    return "<tr>" + "".join(_cell(cell, column) for cell, column in zip(cells, columns, strict=True)) + "</tr>"


def _cell(cell: Cell, column: Column) -> str:
    text = cell.text if column.right else middle_out(cell.text, _NAME_WIDTH)
    shown = f"<strong>{_text(text)}</strong>" if cell.best else _text(text)
    if column.key == "backend":
        return f'<th scope="row">{shown}</th>'
    return f"<td{_side(column)}>{shown}</td>"


def _side(column: Column) -> str:
    return ' class="n"' if column.right else ""


def _listed(notes: tuple[str, ...]) -> list[str]:
    return ["<ul>", *(f"<li>{_text(note)}</li>" for note in notes), "</ul>"] if notes else []


def _methods(found: Document) -> list[str]:
    if not found.methods:
        return []
    facts = [f"<dt>{_text(fact.label)}</dt><dd>{_text(fact.text)}</dd>" for fact in found.methods]
    return ["<h2>Methods</h2>", "<dl>", *facts, "</dl>"]


def _text(text: str) -> str:
    """Text of a file as text of a page: one line, nothing of it is markup, none of its letters steers the reader."""
    return escape(printable(" ".join(text.split())))


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
