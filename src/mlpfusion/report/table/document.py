"""Makes the document of result files that all formats render: a table of all races, and the methods behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.records.profile import BASELINE
from mlpfusion.report.table import across, rows
from mlpfusion.report.table.columns import SPEEDUP, check, clock_of_ratios, data, every, picked
from mlpfusion.report.table.details.detail import table as detailed
from mlpfusion.report.table.details.errors import ERRORS
from mlpfusion.report.table.details.kernels import KERNELS
from mlpfusion.report.table.details.values import VALUES
from mlpfusion.report.table.methods import Shown, facts
from mlpfusion.report.table.model import Document, Table
from mlpfusion.report.table.remarks import remarks
from mlpfusion.report.table.shapes import check_sort, in_order
from mlpfusion.stages.tabulate import races as of
from mlpfusion.stages.tabulate.rebase import rebased

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.profile.columns.column import Column
    from mlpfusion.report.table.model import Value
    from mlpfusion.stages.tabulate.races import Entry, Race
    from mlpfusion.stages.tabulate.sources import Source

_DETAILS: Final = {"kernels": KERNELS, "traffic": VALUES, "accuracy": ERRORS}  # by the set that asks for them


class Options(NamedTuple):
    """What a user may ask of a table: columns and sets of them, the baseline, the order, the rows, the layout."""

    columns: tuple[str, ...] | None = None
    baseline: str = BASELINE
    sort: str | None = None
    rows: tuple[str, ...] | None = None
    transpose: bool = False
    caption: str | None = None
    label: str | None = None


def races_of(sources: Sequence[Source], options: Options) -> tuple[Race, ...]:
    """The races of files as the options want them: relative to the baseline, with the rows that are named, in order.

    Raises:
        UsageError: a row or the baseline is in no file, or there is no column to sort by.
    """
    found = of.of_sources(sources)
    if not found:
        return ()
    found = _with_rows(rebased(found, options.baseline), options.rows)
    if options.sort is None:
        return found
    keys = [column.key for column in every("event_us", options.baseline)]
    key = "-" * options.sort.startswith("-") + _resolved(options.sort.removeprefix("-"), options.baseline)
    if check_sort(key, keys):
        return tuple(in_order(found, key))
    clock = clock_of_ratios(found)
    (column,) = (each for each in every(clock, options.baseline) if each.key == key.removeprefix("-"))
    down = key.startswith("-")
    return tuple(race._replace(entries=_sorted(race.entries, column, down=down)) for race in found)


def document(sources: Sequence[Source], options: Options) -> Document:
    """The document of the files that have races. Errors are as of `races_of`, and those of `columns.picked`."""
    found = races_of(sources, options)
    if not found:
        return Document((), (), options.caption, options.label)
    clock = clock_of_ratios(found)
    if options.transpose and options.columns is None:
        columns = picked((SPEEDUP,), found, clock, options.baseline)
    else:
        columns = picked(options.columns, found, clock, options.baseline)
    columns = _with_status(columns, found)
    if options.transpose:
        columns = [each for each in columns if each.key not in ("status", "backend")] or columns
        tables = [across.laid_out(found, each, clock, options.baseline) for each in columns]
    else:
        tables = [rows.laid_out(found, columns, clock, options.baseline)]
    shown = {column.key for column in columns}
    said = tuple(remarks(found, shown, options.baseline if SPEEDUP in shown else None))
    tables[-1] = Table(tables[-1].title, tables[-1].columns, tables[-1].groups, said)
    for name in options.columns or ():
        tables += detailed(_DETAILS[name], found) if name in _DETAILS else []
    methods = facts(sources, found, tables[0], Shown(shown, clock, options.baseline))
    return Document(tuple(tables), methods, options.caption, options.label)


def _resolved(name: str, baseline: str) -> str:
    """The key of a column by any of its names."""
    return check([name], baseline)[0] if name == "speedup_vs_eager" else name


def _with_rows(races: Sequence[Race], names: tuple[str, ...] | None) -> tuple[Race, ...]:
    """The races with the rows that are named; a race without any of them is left out."""
    if names is None:
        return tuple(races)
    there = dict.fromkeys(each.name for race in races for each in race.entries)
    for name in names:
        if name not in there:
            raise UsageError(f"--rows names {name!r}, which is in no file; valid: {', '.join(there) or 'none'}")
    kept = [race._replace(entries=tuple(each for each in race.entries if each.name in names)) for race in races]
    return tuple(race for race in kept if race.entries)


def _sorted(entries: Sequence[Entry], column: Column, *, down: bool) -> tuple[Entry, ...]:
    """Rows by a column's value; those without one come last, and none that was not measured before a measured one."""

    def value(entry: Entry) -> Value:
        return next(iter(data(column, entry).values()), None)

    known = [each for each in entries if value(each) is not None]
    by_value = sorted(known, key=value, reverse=down)  # type: ignore[arg-type]
    order = [*by_value, *(each for each in entries if value(each) is None)]
    return tuple(sorted(order, key=lambda each: each.standing != "measured"))


def _with_status(columns: Sequence[Column], races: Sequence[Race]) -> list[Column]:
    """The columns, with the status first if a row of them did not run."""
    ran = all(each.standing in ("measured", "predicted") for race in races for each in race.entries)
    if ran or any(column.key == "status" for column in columns):
        return list(columns)
    (status,) = (each for each in every("event_us", BASELINE) if each.key == "status")
    return [status, *columns]
