"""Tables as a page shows them: cells with a text, and a value to sort by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.report.table import model


WHOLE: Final = 20  # letters of a word that is not broken: a role, a clock, a backend's name


class Cell(NamedTuple):
    """What a cell shows, what it is sorted by (its text where that is None), and more that is shown on request.

    `best`: it is marked, alone or as one of several that share the mark.
    """

    text: str
    value: int | float | None = None
    more: str | None = None
    best: bool = False


class Head(NamedTuple):
    """A column: its heading, whether it holds numbers, and which part of a view it belongs to ("", absolute, ...).

    `words`: it holds sentences, in which what stands in backticks is code.
    """

    text: str
    number: bool = False
    part: str = ""
    words: bool = False


class Line(NamedTuple):
    """A row of a table; `keys` are what filters look at: case, backend, tokens, mode, valid."""

    cells: tuple[Cell, ...]
    keys: dict[str, str]


class Table(NamedTuple):
    """A table with its name in the page (`key`), a caption, and whether the page's clock and baseline change it."""

    key: str
    caption: str
    heads: tuple[Head, ...]
    lines: tuple[Line, ...]
    live: bool = False

    @property
    def classes(self) -> str:
        """The classes of `styles` that its columns need: of numbers, and of texts whose words are all short."""
        return " ".join(
            f"{'n' if head.number else 'w'}{place}"
            for place, head in enumerate(self.heads, 1)
            if head.number or self._has_short_words(place - 1)
        )

    def _has_short_words(self, place: int) -> bool:
        words = (word for line in self.lines for word in line.cells[place].text.split())
        return max(map(len, words), default=0) <= WHOLE

    def own(self, line: Line) -> list[tuple[str, str]]:
        """The keys of a line that a script cannot read in its cells, nor in the case that they name."""
        said = {head.text: each.text for head, each in zip(self.heads, line.cells, strict=True)}
        told = {"tokens", "mode", "valid"} if "case" in line.keys else set()
        return [(key, value) for key, value in line.keys.items() if key not in told and said.get(key) != value]


def styles(columns: int) -> str:
    """The styles of columns, as far as any table has columns: by classes of the table, not one of each cell."""
    numbers, words = (
        ", ".join(f".{letter}{place} td:nth-child({place})" for place in range(1, columns + 1)) for letter in "nw"
    )
    look = "text-align: right; white-space: var(--number-wrap); overflow-wrap: normal; min-width: var(--number-room);"
    rest = f":is({words}):not(:first-child, :last-child) {{ min-width: var(--number-room); }}"
    return f":is({numbers}) {{ {look} }}\n:is({words}) {{ overflow-wrap: var(--word-wrap); }}\n{rest}\n"


def of_model(table: model.Table, key: str) -> Table:
    """A table of `mlpfusion table` as the page shows it: the same texts, sorted by the same values."""
    heads = tuple(Head(column.head, number=column.right) for column in table.columns)
    lines = []
    for each in table.lines:
        values = [each.data.get(column.key) for column in table.columns]
        cells = [of_text(text.text, value, best=text.best) for text, value in zip(each.cells, values, strict=True)]
        keys = {name: str(each.data[name]) for name in ("backend", "tokens", "mode") if each.data.get(name) is not None}
        lines.append(Line(tuple(cells), keys))
    return Table(key, table.title, heads, tuple(lines))


def of_text(text: str, value: model.Value, *, best: bool = False) -> Cell:
    """A cell with a text of `mlpfusion table`, sorted by the value behind it where that is a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and text not in ("", ABSENT)
    return Cell(text or ABSENT, value if is_number else None, best=best)  # type: ignore[arg-type]


def cell(text: str | None, value: int | float | None = None, more: str | None = None) -> Cell:
    """A cell; the mark of an absent value for None or nothing."""
    return Cell(text or ABSENT, value, more)


def line(*cells: Cell | str | None, **keys: str) -> Line:
    """A row of cells, plain texts among them."""
    return Line(tuple(each if isinstance(each, Cell) else cell(each) for each in cells), keys)
