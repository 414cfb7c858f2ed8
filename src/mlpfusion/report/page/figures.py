"""The figures of a page: every one that its files have numbers for, by each clock, with the table of its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion import units
from mlpfusion.errors import UsageError
from mlpfusion.report.figures import registry
from mlpfusion.report.figures.figure import Options
from mlpfusion.report.page.cases import clocks_read
from mlpfusion.report.page.cells import Cell, Head, Line, Table, cell
from mlpfusion.storage.gathered import Gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mlpfusion.report.figures.figure import Cell as Number
    from mlpfusion.report.figures.figure import Figure, Key, Width
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.report.page.cases import Case
    from mlpfusion.report.page.sources import Source
    from mlpfusion.report.profile.columns.clocks import ClockName

    Places = Callable[[Shape], int | None]  # the place of a shape among the cases of the page

VENDORED: Final = Path(__file__).parent / "vendored"
SCRIPTS: Final = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")  # in the order in which they need each other
_FILTERED: Final = ("backend", "tokens", "mode", "clock", "case")  # columns that filters look at
_WIDTHS: Final[dict[str, Width]] = {"wide": 178, "narrow": 84}


class Drawn(NamedTuple):
    """A figure: its name, first words, caption and notes, and its numbers by every clock.

    `specs` are by clock, or by "" where a figure takes none: caption, baseline if it takes one, and for each width the
    specification, what its rows are of (`keys`), and the backends by what they are called (`names`).
    """

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


def figures(
    sources: Sequence[Source], cases: Sequence[Case], clock: ClockName
) -> tuple[tuple[Drawn, ...], tuple[Absent, ...]]:
    """Every figure that can be drawn, first by this clock and then by the others, and why the others cannot."""
    files = tuple(Gathered(str(each.path), each.result, each.given) for each in sources)
    names = {str(each.path): each.name for each in sources}
    known = {(case.source.partition(":")[0], case.spec, case.tokens, case.mode): at for at, case in enumerate(cases)}

    def places(shape: Shape) -> int | None:
        return known.get((names.get(shape.path, "").partition(":")[0], *shape.key))

    read = clocks_read(cases)
    drawn, absent = [], []
    for name, kind in registry.FIGURES.items():
        by: list[ClockName | None] = []
        if "clock" in kind.takes:
            by.extend(sorted(read, key=lambda each: each != clock))
        made: dict[str, dict[str, Figure]] = {}
        for each in by or [None]:
            try:
                made[each or ""] = {
                    width: registry.make(name, files, Options(width=size, clock=each))
                    for width, size in _WIDTHS.items()
                }
            except UsageError as error:
                why = Absent(name, _named(str(error), names))
        if not made:
            absent.append(why)
            continue
        specs = {each: _spec(widths, names, places) for each, widths in made.items()}
        first = next(iter(made.values()))["wide"]
        rows = [row for widths in made.values() for row in widths["wide"].rows]
        caption, notes = _named(first.caption, names), tuple(_named(first.notes, names))
        drawn.append(Drawn(name, first.title, caption, notes, specs, _table(first, rows, names, places)))
    return tuple(drawn), tuple(absent)


def _spec(widths: dict[str, Figure], names: dict[str, str], places: Places) -> dict[str, Any]:
    """What the page draws by one clock, in both widths."""
    wide = widths["wide"]
    more = {"baseline": Options().baseline} if "baseline" in registry.FIGURES[wide.name].takes else {}
    return {
        "title": wide.title,
        "caption": _named(wide.caption, names),
        **more,
        **{
            width: {
                "spec": _named(each.spec, names),
                "names": each.names,
                "keys": {"data": {"values": [_key(key, names, places) for key in each.keys]}},
            }
            for width, each in widths.items()
        },
    }


def _key(key: Key, names: dict[str, str], places: Places) -> dict[str, Any]:
    """What filters look at in a row of a figure; the case is what the page has its times by."""
    _, tokens, mode = key.shape.key
    row = _named(key.row, names)
    return {"row": row, "backend": key.backend, "tokens": tokens, "mode": mode, "case": places(key.shape)}


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


def _table(figure: Figure, rows: Sequence[Sequence[Number]], names: dict[str, str], places: Places) -> Table:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in figure.columns]
    numeric = [any(_is_number(value) for value in column) for column in columns]
    heads = tuple(Head(name, number=flag) for name, flag in zip(figure.columns, numeric, strict=True))
    more = {"baseline": Options().baseline} if "baseline" in registry.FIGURES[figure.name].takes else {}
    of: dict[tuple[Number, Number], Shape] = {(key.backend, key.text): key.shape for key in figure.keys}
    lines = tuple(
        Line(tuple(_cell(_named(value, names)) for value in row), {**_keys(figure.columns, row, of, places), **more})
        for row in rows
    )
    return Table(f"figure-{figure.name}", f"The numbers of this figure: {figure.title}", heads, lines)


def _keys(
    columns: Sequence[str], row: Sequence[Number], of: Mapping[tuple[Number, Number], Shape], at: Places
) -> dict[str, str]:
    """What filters look at: columns of these names, or the case of a row that names its shape."""
    named = dict(zip(columns, row, strict=True))
    shape = of.get((named.get("backend"), named.get("shape")))
    case = None if shape is None else at(shape)
    more = {} if shape is None else {"tokens": shape.workload.tokens, "mode": shape.workload.mode, "case": case}
    return {name: str(value) for name, value in {**named, **more}.items() if name in _FILTERED and value is not None}


def _cell(value: Number) -> Cell:
    if isinstance(value, bool):
        return cell("yes" if value else "no")
    if isinstance(value, int | float):
        shown = str(value) if isinstance(value, int) else f"{'-' if value < 0 else ''}{units.plain(abs(value))}"
        return cell(shown, value)
    return cell(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
