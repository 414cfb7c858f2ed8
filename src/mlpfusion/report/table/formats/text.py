"""Renders tables as plain text or GitHub Markdown, with the methods below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.report.grid import fitted, middle_out, tabulated
from mlpfusion.report.profile.legend import wrapped
from mlpfusion.report.table.model import Cell
from mlpfusion.storage.letters import markdown, printable

if TYPE_CHECKING:
    from mlpfusion.report.table.model import Document, Group, Table

NAME_WIDTH: Final = 64  # of a cell that is no number; CSV and JSON have all of it


def render(found: Document, *, github: bool) -> str:
    """The document; ends with a newline."""
    blocks = [block for table in found.tables for block in _blocks(table, github=github)]
    if found.methods:
        facts = [(fact.label, " ".join(fact.text.split())) for fact in found.methods]
        blocks.append(
            "\n".join(
                f"- **{markdown(label)}**: {markdown(text)}" if github else wrapped(label, text)
                for label, text in facts
            )
        )
    return printable("\n\n".join(blocks) + "\n")


def cells_of(group: Group, table: Table) -> list[list[Cell]]:
    """The cells of a group without what the line above says already of the race and the backend."""
    keys = [column.key for column in table.columns]
    stub = keys.index("backend") + 1 if "backend" in keys else 0
    found: list[list[Cell]] = []
    above: tuple[Cell, ...] = ()
    for line in group.lines:
        same = next((place for place in range(stub) if line.cells[: place + 1] != above[: place + 1]), stub)
        found.append([*[Cell("")] * same, *line.cells[same:]])
        above = line.cells
    return found


def _blocks(table: Table, *, github: bool) -> list[str]:
    right = [column.right for column in table.columns]
    heads = [column.head for column in table.columns]
    cells = [
        [_shown(cell, github=github) for cell in cells] for group in table.groups for cells in cells_of(group, table)
    ]
    if cells and not github:
        cells = fitted(cells, heads, right)
    shown = [markdown(head) for head in heads] if github else heads
    grid = tabulated(cells, shown, right, github=github, is_markdown=True)
    notes = [f"- {markdown(note)}" if github else note for note in table.notes]
    title = " ".join(table.title.split())
    return [f"**{markdown(title)}**" if github else title, grid, *(["\n".join(notes)] if notes else [])]


def _shown(cell: Cell, *, github: bool) -> str:
    text = middle_out(cell.text, NAME_WIDTH)
    if github:
        return f"**{markdown(text)}**" if cell.best else markdown(text)
    return f"* {text}" if cell.best else text
