"""The tables of a page: every row of every case, its kernels, its ledger, its errors and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.records.profile import BASELINE
from mlpfusion.report import speedup
from mlpfusion.report.grid import clock_time, decoded_text, kernel_time, shorten
from mlpfusion.report.page.cases import is_timed
from mlpfusion.report.page.cells import Cell, Head, Line, Table, cell, line
from mlpfusion.report.profile.columns.clocks import clock_of
from mlpfusion.report.profile.columns.every import all_columns
from mlpfusion.report.profile.columns.every import cell as column_text
from mlpfusion.report.profile.row import status, verdict
from mlpfusion.trace.names import explain
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.records.profile import Kernel, Row
    from mlpfusion.report.page.cases import Case
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.profile.columns.column import Column

_HOST: Final = ("kernel_us", "launches", "host_us", "bound", "first_launch_us", "dynamo_us", "compiled_graph_us")
_LEDGER: Final = ("round_trips", "hbm_bytes", "bandwidth", "of_roofline")
_COSTS: Final = ("peak_bytes", "saved_bytes", "setup_s")
_CASE: Final = (Head("workload"), Head("tokens", number=True), Head("backend"))


def keys_of(place: int, case: Case, row: Row, clock: ClockName) -> dict[str, str]:
    """What filters look at: the place of the case, its backend, tokens and mode, and whether the row is valid."""
    valid = "yes" if is_timed(row, clock) else "no"
    return {"case": str(place), "backend": row.backend, "tokens": str(case.tokens), "mode": case.mode, "valid": valid}


def results(cases: Sequence[Case], clock: ClockName) -> Table:
    """Every row by one clock; the page rewrites the time and the speedup when its clock or baseline changes."""
    heads = (
        *_CASE,
        Head("status"),
        Head(f"{clock.removesuffix('_us')} µs [p20–p80]", number=True, part="absolute"),
        Head("speedup vs eager", number=True, part="relative"),
        Head("kernels", number=True),
        Head("error / eager's", number=True),
        Head("source"),
    )
    by_name = {column.key: column for column in all_columns(clock)}

    def cells(case: Case, row: Row) -> list[Cell]:
        found = clock_of(row, clock) if is_timed(row, clock) else None
        ratio = None if found is None else found.ratio_to_eager
        said = "baseline" if row.backend == BASELINE and found is not None else speedup.cell(ratio)
        word, reason = verdict(row)
        return [
            cell(status(row), more=None if word == "ok" else reason),
            cell(clock_time(found), None if found is None else found.median),
            cell(said, speedup.of(ratio).median if ratio is not None else 1.0 if said == "baseline" else None),
            _of_column(by_name["kernels"], row),
            _of_column(by_name["error"], row),
            cell(case.source),
        ]

    return Table("results", "Every row", heads, _lines(cases, clock, cells), live=True)


def host(cases: Sequence[Case], clock: ClockName) -> Table:
    """The host's side of a call."""
    return _columns("host", "Host: launches, and time before the first", cases, clock, _HOST)


def ledger(cases: Sequence[Case], clock: ClockName) -> Table:
    """Bytes and round-trips of a call."""
    return _columns("ledger", "Ledger: bytes through device memory", cases, clock, _LEDGER)


def costs(cases: Sequence[Case], clock: ClockName) -> Table:
    """Memory, and the time until the first call is done: each read once."""
    return _columns("costs", "Costs: memory and set-up, each read once, without an interval", cases, clock, _COSTS)


def accuracy(cases: Sequence[Case], clock: ClockName) -> Table:
    """Errors against fp64, over eager's own."""
    heads = (
        *_CASE,
        Head("largest error", number=True),
        Head("eager's", number=True),
        Head("rms error", number=True),
        Head("eager's rms", number=True),
        Head("larger ratio", number=True),
        Head("limit", number=True),
        Head("rows", number=True),
        Head("elements", number=True),
    )

    def cells(_: Case, row: Row) -> list[Cell]:
        found = row.accuracy
        if found is None:
            return []
        small = [found.max_error, found.eager_max_error, found.rms_error, found.eager_rms_error]
        return [
            *[cell("nan or inf" if value is None else units.small(value), value) for value in small],
            cell(units.plain(found.ratio), found.ratio),
            cell(units.plain(found.limit), found.limit),
            cell(str(found.rows), found.rows),
            cell(str(found.elements), found.elements),
        ]

    return Table("accuracy", "Errors against fp64", heads, _lines(cases, clock, cells))


def intermediates(cases: Sequence[Case], clock: ClockName) -> Table:
    """Every value that one kernel of a call writes to memory and another reads back."""
    heads = (*_CASE, Head("value"), Head("MB", number=True), Head("moved MB", number=True), Head("written by"))
    lines = []
    for place, case in enumerate(cases):
        for row in case.rows:
            for each in row.traffic.intermediates if row.traffic is not None else ():
                written = cell(shorten(each.written_by), more=_full(each.written_by))
                sizes = [cell(units.plain(size / 1e6), size) for size in (each.bytes, each.moved_bytes)]
                read = cell(", ".join(shorten(name) for name in each.read_by))
                own = [*_case(case, row), cell(each.role), *sizes, written, read]
                lines.append(Line(tuple(own), keys_of(place, case, row, clock)))
    return Table("intermediates", "Values that go through device memory", (*heads, Head("read by")), tuple(lines))


# ---- kernels ---------------------------------------------------------------------------------------------------------


def launches(cases: Sequence[Case], clock: ClockName) -> Table:
    """Every kernel of every row, in order of execution."""
    heads = (*_CASE, Head("#", number=True), Head("role"), Head("kernel"), Head("µs [p20–p80]", number=True))
    lines = []
    for place, case in enumerate(cases):
        for row in case.rows:
            for number, kernel in enumerate(row.kernels, 1):
                time = kernel_time(kernel)
                own = [cell(str(number), number), cell(kernel.role), cell(shorten(kernel.name))]
                timed = cell(time, None if time == ABSENT else kernel.time_us)
                lines.append(Line((*_case(case, row), *own, timed), keys_of(place, case, row, clock)))
    return Table("launches", "Kernels of each row, in order; times are of the trace", heads, tuple(lines))


def kernels(cases: Sequence[Case]) -> Table:
    """Every kernel once: what its name says, and which backends run it."""
    heads = (Head("kernel"), Head("role"), Head("decoded"), Head("what the name says"), Head("run by"))
    found: dict[str, tuple[Kernel, dict[str, None]]] = {}
    for case in cases:
        for row in case.rows:
            for kernel in row.kernels:
                found.setdefault(kernel.name, (kernel, {}))[1][row.backend] = None
    lines = [
        line(
            cell(shorten(name), more=_full(name)),
            kernel.role,
            decoded_text(kernel.decoded),
            explain.explain(name).sentence,
            ", ".join(backends),
        )
        for name, (kernel, backends) in found.items()
    ]
    return Table("kernels", "Kernels, decoded from their names", heads, tuple(lines))


def _full(name: str) -> str | None:
    return name if shorten(name) != name else None


# ---- from the columns of a profile -----------------------------------------------------------------------------------


def _columns(key: str, caption: str, cases: Sequence[Case], clock: ClockName, names: Sequence[str]) -> Table:
    """The columns of these names that any row has."""
    rows = [row for case in cases for row in case.rows]
    shown = [
        column
        for column in all_columns(clock)
        if column.key in names and any(column.text(row) != ABSENT for row in rows)
    ]

    def cells(_: Case, row: Row) -> list[Cell]:
        made = [_of_column(column, row) for column in shown]
        return made if any(each.text != ABSENT for each in made) else []

    heads = (*_CASE, *(Head(column.head, number=column.right) for column in shown))
    return Table(key, caption, heads, _lines(cases, clock, cells) if shown else ())


def _of_column(column: Column, row: Row) -> Cell:
    numbers = [value for value in column.data(row).values() if isinstance(value, int | float)]
    return cell(column_text(column, row), numbers[0] if numbers else None)


def _lines(cases: Sequence[Case], clock: ClockName, cells: Callable[[Case, Row], Sequence[Cell]]) -> tuple[Line, ...]:
    """A line for each row of each case for which there are cells."""
    return tuple(
        Line((*_case(case, row), *made), keys_of(place, case, row, clock))
        for place, case in enumerate(cases)
        for row in case.rows
        if (made := cells(case, row))
    )


def _case(case: Case, row: Row) -> tuple[Cell, ...]:
    return cell(case.label), cell(str(case.tokens), case.tokens), cell(row.backend)
