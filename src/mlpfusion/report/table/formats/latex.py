"""Renders tables as LaTeX that needs the package booktabs and no other."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

from mlpfusion.report.grid import fitted, middle_out
from mlpfusion.report.table.formats.text import cells_of
from mlpfusion.report.table.model import Cell, Group, Line, Table

if TYPE_CHECKING:
    from mlpfusion.report.table.model import Column, Document

_NAME_WIDTH: Final = 48  # letters of a name
_WIDEST: Final = (
    105  # letters of a line of 17 cm in the size `small`; intervals of a wider table stand below their values
)
_LINES: Final = 48  # of a table on one page
_PAGE: Final = 58  # lines of a page, with notes
_NOTE: Final = 115  # letters of a line of notes
# What TeX reads as its own, and what its fonts lack or join: in the encoding OT1, which needs no package.
_SPELLED: Final = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{''}",
    "`": r"{`}",
    "'": r"{'}",
    "-": "-",
    **{each: f"\\{each}" for each in "#$%&_"},
    "µ": r"$\mu$",
    "μ": r"$\mu$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "→": r"$\to$",
    "≈": r"$\approx$",
    "°": r"$^\circ$",
    "²": "$^2$",
    "³": "$^3$",
    "⁹": "$^9$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "§": r"\S{}",
    "ß": r"\ss{}",
    "�": "?",
}
_ACCENTS: Final = {
    "\u0300": r"\`",
    "\u0301": r"\'",
    "\u0302": r"\^",
    "\u0303": r"\~",
    "\u0308": r"\"",
    "\u030a": r"\r",
    "\u030c": r"\v",
    "\u0327": r"\c",
}
_FACTOR: Final = re.compile(r"(?<=\d)x(?= \[|$| /)")


def render(found: Document) -> str:
    """The document: an environment `table` for each table, the methods under the last; ends with a newline."""
    made = [
        _table(
            table,
            caption=found.caption if found.caption is not None and number == 0 else table.title,
            label=found.label if number == 0 else None,
            notes=_notes(found, table, last=number == len(found.tables) - 1),
        )
        for number, table in enumerate(found.tables)
    ]
    return "% \\usepackage{booktabs}\n" + "\n".join(made)


def escaped(text: str) -> str:
    """Text as LaTeX prints it: one line, with no markup of its own, whatever is in it."""
    line = " ".join(text.split())
    found = []
    for place, letter in enumerate(line):
        if letter == "-" and place and line[place - 1] == "-":
            found.append("{}")  # two of them would be one dash
        found.append(_letter(letter))
    return "".join(found)


def _letter(letter: str) -> str:
    if letter in _SPELLED:
        return _SPELLED[letter]
    if letter.isascii():
        return letter if letter.isprintable() else "?"
    base, *marks = list(unicodedata.normalize("NFD", letter))
    if base.isascii() and base.isalpha() and len(marks) == 1 and marks[0] in _ACCENTS:
        return f"{_ACCENTS[marks[0]]}{{{base}}}"
    return f"[U+{ord(letter):04X}]" if letter.isprintable() else "?"


def _table(table: Table, *, caption: str, label: str | None, notes: list[str]) -> str:
    """An environment `table`, or several of as many lines as a page has room for: longer ones need another package."""
    stacked = _width(table) > _WIDEST
    table = _fitted(table)
    parts = _parts(table, _LINES // (1 + stacked))
    made = []
    for number, groups in enumerate(parts):
        of = f" ({number + 1} of {len(parts)})" if len(parts) > 1 else ""
        body: list[str] = []
        for place, group in enumerate(groups):
            body += [r"\addlinespace"] * (place > 0)
            for cells in cells_of(group, table):
                body.append(_row([_cell(c, column, stacked) for c, column in zip(cells, table.columns, strict=True)]))
        lines = [
            r"\centering",
            rf"\caption{{{escaped(caption)}{of}}}",
            *([] if label is None or number > 0 else [rf"\label{{{label}}}"]),
            r"\small",
            r"\setlength{\tabcolsep}{4pt}",
            rf"\begin{{tabular}}{{@{{}}{''.join('r' if column.right else 'l' for column in table.columns)}@{{}}}}",
            r"\toprule",
            _row([escaped(column.head) for column in table.columns]),
            r"\midrule",
            *(body or [_row(["no rows", *[""] * (len(table.columns) - 1)])]),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        last, room = number == len(parts) - 1, _PAGE - sum(len(group.lines) for group in groups) * (1 + stacked)
        below = _below(notes) if last else []
        inside = sum(1 + len(note) // _NOTE for note in notes) <= room
        lines += [r"\par\smallskip", *below] if inside and below else []
        made.append("\n".join([r"\begin{table}", *(f"  {line}" for line in lines), r"\end{table}"]) + "\n")
        if below and not inside:
            made.append("\n".join([r"\par\noindent", *below]) + "\n")
    return "\n".join(made)


def _parts(table: Table, room: int) -> list[list[Group]]:
    """The groups in as many parts as they need pages of `room` lines; a group that is longer than a page is cut."""
    whole = [
        Group(group.lines[start : start + room]) for group in table.groups for start in range(0, len(group.lines), room)
    ]
    parts: list[list[Group]] = [[]]
    for group in whole:
        if parts[-1] and sum(len(each.lines) for each in parts[-1]) + len(group.lines) > room:
            parts.append([])
        parts[-1].append(group)
    return parts


def _fitted(table: Table) -> Table:
    """The table with what a page has room for of its names, which CSV and JSON have whole; numbers stay as they are."""
    right = [column.right for column in table.columns]
    texts = [
        [_said(cell, column) for cell, column in zip(line.cells, table.columns, strict=True)] for line in table.lines
    ]
    heads = [column.head for column in table.columns]
    # A stacked number is as wide as its interval.
    narrow = [
        [text.rpartition(" [")[2] if flag else text for text, flag in zip(row, right, strict=True)] for row in texts
    ]
    fit = fitted(narrow if _width(table) > _WIDEST else texts, heads, right, _WIDEST) if texts else []
    lines = iter(
        Line(
            tuple(
                Cell(said if flag else short, cell.best)
                for cell, said, short, flag in zip(line.cells, text, shorter, right, strict=True)
            ),
            line.data,
            line.kind,
        )
        for line, text, shorter in zip(table.lines, texts, fit, strict=True)
    )
    groups = tuple(Group(tuple(next(lines) for _ in group.lines)) for group in table.groups)
    return Table(table.title, table.columns, groups, table.notes)


def _width(table: Table) -> int:
    """Letters of a line."""
    columns = zip(table.columns, zip(*(line.cells for line in table.lines), strict=True), strict=False)
    return sum(2 + max(len(column.head), *(len(_said(cell, column)) for cell in cells)) for column, cells in columns)


def _row(cells: list[str]) -> str:
    """A line of the table; TeX would read a star or a bracket at its start as an argument of the line before."""
    start = "{}" if cells[0][:1] in ("[", "*") else ""
    return f"{start}{' & '.join(cells)} \\\\"


def _cell(cell: Cell, column: Column, stacked: bool) -> str:
    said = _said(cell, column)
    value, bracket, interval = said.partition(" [")
    if stacked and bracket and column.right:
        above, below = escaped(value), rf"\scriptsize {{[}}{escaped(interval)}"
        above = rf"\textbf{{{above}}}" if cell.best else above
        return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{above} \\ {below}\end{{tabular}}"
    return rf"\textbf{{{escaped(said)}}}" if cell.best else escaped(said)


def _said(cell: Cell, column: Column) -> str:
    return _FACTOR.sub("×", cell.text) if column.right else middle_out(cell.text, _NAME_WIDTH)


def _notes(found: Document, table: Table, *, last: bool) -> list[str]:
    notes = [escaped(note) for note in table.notes]
    methods = [rf"\textit{{{escaped(fact.label)}}}: {escaped(fact.text)}" for fact in found.methods if last]
    return [*notes, *methods]


def _below(notes: list[str]) -> list[str]:
    if not notes:
        return []
    return [
        r"\begin{minipage}{\linewidth}",
        r"\footnotesize\raggedright",
        *(f"{note}\\par" for note in notes),
        r"\end{minipage}",
    ]
