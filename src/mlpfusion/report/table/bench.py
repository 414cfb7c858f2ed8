"""Shows a file of a script of `bench/`: its figures by the path to them, those of one shape in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion import units
from mlpfusion.report.grid import FORMATS, Grid, clipped, csv_text
from mlpfusion.spec import one_of
from mlpfusion.storage.letters import escaped, printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.records.bench import Bench

_COLUMNS: Final = 8  # of a table; what has more is shown as one line of names and values
_ROWS: Final = 40  # of a table, and tables of a file; the rest is counted
_WIDTH: Final = 40  # letters of a cell
_NAMES: Final = ("name", "key", "id", "target", "use")  # what an entry of a list is called, if it has one of these


def render(found: Bench, fmt: str = "text") -> str:
    """The file in one of `grid.FORMATS`; ends with a newline. JSON and CSV have every value, tables their first rows.

    Raises:
        UsageError: `fmt` is none of them.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        document = {"schema": found.schema, "kind": found.kind, **found.content}
        return escaped(msgspec.json.format(msgspec.json.encode(document), indent=1).decode()) + "\n"
    records = list(_records(found.content, ()))
    if fmt == "csv":
        lines = [
            {"path": " / ".join(path), "field": name, "value": _all(value)}
            for path, fields in records
            for name, value in fields.items()
        ]
        return csv_text(lines)
    found_grids, ends = grids(found)
    shown = ["\n".join(filter(None, (grid.text(github=fmt == "github"), grid.title))) for grid in found_grids]
    return printable("\n\n".join([f"{found.kind}, schema {found.schema}", *shown, *ends]) + "\n")


def grids(found: Bench) -> tuple[list[Grid], list[str]]:
    """The first rows of the first tables, each titled by what it leaves out, and what is left out of them."""
    tables = _tables(list(_records(found.content, ())))
    shown = [_grid(heads, rows) for heads, rows in list(tables.items())[:_ROWS]]
    rest = len(tables) - len(shown)
    return shown, [f"{rest} more tables: --format csv has all values"] if rest else []


def _records(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every object that has values of its own, with the path to it; an object of objects alone is a part of paths."""
    if isinstance(value, dict):
        own = {name: each for name, each in value.items() if not _is_nested(each)}
        if own:
            yield path, own
        for name, each in value.items():
            if _is_nested(each):
                yield from _records(each, (*path, name))
    else:
        for number, each in enumerate(value):
            called = next((each[name] for name in _NAMES if isinstance(each.get(name), str)), str(number))
            yield from _records(each, (*path, called))


def _is_nested(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _tables(
    records: Sequence[tuple[tuple[str, ...], dict[str, Any]]],
) -> dict[tuple[str, ...], list[tuple[str, list[Any]]]]:
    """Records of equal fields together; one that has more fields than a table has room for is a table of its own."""
    found: dict[tuple[str, ...], list[tuple[str, list[Any]]]] = {}
    for path, fields in records:
        named = " / ".join(path) or "all"
        if len(fields) <= _COLUMNS:
            found.setdefault(tuple(fields), []).append((named, list(fields.values())))
        else:
            found[("", named)] = [(name, [value]) for name, value in fields.items()]
    return found


def _grid(heads: tuple[str, ...], rows: Sequence[tuple[str, list[Any]]]) -> Grid:
    cells = [[clipped(name, 2 * _WIDTH), *[_cell(value) for value in values]] for name, values in rows[:_ROWS]]
    columns = ["", *[clipped(head, _WIDTH) for head in (heads if heads[:1] != ("",) else heads[1:])]]
    numbers = [all(isinstance(values[place], int | float) for _, values in rows) for place in range(len(columns) - 1)]
    rest = len(rows) - len(cells)
    return Grid(f"{rest} more rows: --format csv has all values" if rest else "", columns, cells, [False, *numbers])


def _cell(value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, (bool, str)):
        return clipped(str(value), _WIDTH)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return units.plain(value) if value >= 0 else f"-{units.plain(-value)}"
    if isinstance(value, list) and len(value) > 4:
        return f"{len(value)} values"
    return clipped(_all(value), _WIDTH)


def _all(value: Any) -> str:
    """The whole value as text."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
