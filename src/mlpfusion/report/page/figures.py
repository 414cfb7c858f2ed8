"""The figures of a page: every one that its files have numbers for, in both widths, with the table of its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion import units
from mlpfusion.errors import UsageError
from mlpfusion.report.figures import registry
from mlpfusion.report.figures.figure import Options
from mlpfusion.report.page.cells import Cell, Head, Line, Table, cell
from mlpfusion.storage.gathered import Gathered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.figures.figure import Cell as Number
    from mlpfusion.report.figures.figure import Figure
    from mlpfusion.report.page.sources import Source

VENDORED: Final = Path(__file__).parent / "vendored"
SCRIPTS: Final = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")  # in the order in which they need each other
_FILTERED: Final = ("backend", "tokens", "mode")  # columns that filters look at


class Drawn(NamedTuple):
    """A figure: its name, first words, caption and notes, its specification in both widths, and its numbers."""

    name: str
    title: str
    caption: str
    notes: tuple[str, ...]
    specs: dict[str, dict[str, Any]]
    table: Table


class Absent(NamedTuple):
    """A figure that cannot be drawn of these files, and why."""

    name: str
    why: str


def figures(sources: Sequence[Source]) -> tuple[tuple[Drawn, ...], tuple[Absent, ...]]:
    """Every figure that can be drawn, and why the others cannot."""
    files = tuple(Gathered(str(each.path), each.result, each.given) for each in sources)
    names = {str(each.path): each.name for each in sources}
    drawn, absent = [], []
    for name in registry.NAMES:
        try:
            wide = registry.make(name, files, Options(width=178))
            narrow = registry.make(name, files, Options(width=84))
        except UsageError as error:
            absent.append(Absent(name, _named(str(error), names)))
            continue
        specs = {"wide": _named(wide.spec, names), "narrow": _named(narrow.spec, names)}
        caption, notes = _named(wide.caption, names), tuple(_named(wide.notes, names))
        drawn.append(Drawn(name, wide.title, caption, notes, specs, _table(wide, names)))
    return tuple(drawn), tuple(absent)


def scripts() -> list[str]:
    """The scripts that draw figures."""
    return [(VENDORED / name).read_text(encoding="utf-8") for name in SCRIPTS]


def licences() -> tuple[str, ...]:
    """Who made these scripts, and under which licence they are here."""
    listed = json.loads((VENDORED / "vendored.json").read_text(encoding="utf-8"))
    return tuple(f"{each['name']} {each['version']} ({each['license']})" for each in listed)


def _named(value: Any, names: dict[str, str]) -> Any:
    """The value with the paths of files as the page calls them: where they lie is nobody's concern."""
    if isinstance(value, str):
        for path, name in names.items():
            if path in value:
                value = value.replace(path, name)
        return value
    if isinstance(value, dict):
        return {key: _named(each, names) for key, each in value.items()}
    return [_named(each, names) for each in value] if isinstance(value, list | tuple) else value


def _table(figure: Figure, names: dict[str, str]) -> Table:
    columns = list(zip(*figure.rows, strict=True)) if figure.rows else [() for _ in figure.columns]
    numeric = [any(_is_number(value) for value in column) for column in columns]
    heads = tuple(Head(name, number=flag) for name, flag in zip(figure.columns, numeric, strict=True))
    lines = tuple(
        Line(tuple(_cell(_named(value, names)) for value in row), _keys(figure.columns, row)) for row in figure.rows
    )
    return Table(f"figure-{figure.name}", f"The numbers of this figure: {figure.title}", heads, lines)


def _keys(columns: Sequence[str], row: Sequence[Number]) -> dict[str, str]:
    return {
        name: str(value) for name, value in zip(columns, row, strict=True) if name in _FILTERED and value is not None
    }


def _cell(value: Number) -> Cell:
    if isinstance(value, bool):
        return cell("yes" if value else "no")
    if isinstance(value, int | float):
        shown = str(value) if isinstance(value, int) else f"{'-' if value < 0 else ''}{units.plain(abs(value))}"
        return cell(shown, value)
    return cell(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
