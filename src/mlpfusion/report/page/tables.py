"""The tables of a page: every row of every case, its kernels, its ledger, its errors and what it costs.

Texts, values and marks are those of `mlpfusion table`; here is which of them a page shows, and what filters look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.records.profile import BASELINE
from mlpfusion.report.grid import decoded_text, shorten
from mlpfusion.report.page.cases import is_timed
from mlpfusion.report.page.cells import Cell, Head, Line, Table, cell, line, of_text
from mlpfusion.report.profile.row import verdict
from mlpfusion.report.table.columns import SETS, SPEEDUP, data, every, text
from mlpfusion.report.table.details.errors import ERRORS
from mlpfusion.report.table.details.kernels import KERNELS
from mlpfusion.report.table.details.values import VALUES
from mlpfusion.report.table.rows import group, name_of
from mlpfusion.trace.names import explain
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Kernel, Row
    from mlpfusion.report.page.cases import Case
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.profile.columns.column import Column
    from mlpfusion.report.table.details.detail import Detail
    from mlpfusion.stages.tabulate.races import Entry

_CASE: Final = (Head("workload"), Head("tokens", number=True), Head("backend"))


def keys_of(place: int, case: Case, row: Row, clock: ClockName) -> dict[str, str]:
    """What filters look at: the place of the case, its backend, tokens and mode, and whether the row is valid."""
    valid = "yes" if is_timed(row, clock) else "no"
    return {"case": str(place), "backend": row.backend, "tokens": str(case.tokens), "mode": case.mode, "valid": valid}


# ---- from the columns of `table` -------------------------------------------------------------------------------------


def results(cases: Sequence[Case], clock: ClockName) -> Table:
    """Every row by one clock; the page rewrites the time and the speedup when its clock or baseline changes."""
    parts = {clock: "absolute", SPEEDUP: "relative"}
    columns = _with_text(cases, clock, ("kernels", "error"), always=("status", clock, SPEEDUP))
    heads = (Head(c.head, number=c.right, part=parts.get(c.key, "")) for c in columns)
    lines = [
        each._replace(cells=(*each.cells, cell(cases[int(each.keys["case"])].source)))
        for each in _lines(cases, clock, columns)
    ]
    return Table("results", "Every row", (*_CASE, *heads, Head("source")), tuple(lines), live=True)


def host(cases: Sequence[Case], clock: ClockName) -> Table:
    """The host's side of a call."""
    return _of_columns("host", "Host: launches, and time before the first", cases, clock, SETS["host"])


def ledger(cases: Sequence[Case], clock: ClockName) -> Table:
    """Bytes and round-trips of a call."""
    return _of_columns("ledger", "Ledger: bytes through device memory", cases, clock, SETS["traffic"])


def costs(cases: Sequence[Case], clock: ClockName) -> Table:
    """Memory, and the time until the first call is done: each read once."""
    caption = "Costs: memory and set-up, each read once, without an interval"
    return _of_columns("costs", caption, cases, clock, (*SETS["memory"], "setup_s"))


def _of_columns(key: str, caption: str, cases: Sequence[Case], clock: ClockName, names: Sequence[str]) -> Table:
    columns = _with_text(cases, clock, names)
    lines = [
        each for each in _lines(cases, clock, columns) if any(one.text != ABSENT for one in each.cells[len(_CASE) :])
    ]
    return Table(key, caption, (*_CASE, *(Head(c.head, number=c.right) for c in columns)), tuple(lines))


def _with_text(
    cases: Sequence[Case], clock: ClockName, names: Sequence[str], always: Sequence[str] = ()
) -> list[Column]:
    """The columns that are `always` there, and those of these names that any row has."""
    by_key = {column.key: column for column in every(clock, BASELINE)}
    entries = [entry for case in cases for entry in case.race.entries]
    found = [by_key[name] for name in names if any(text(by_key[name], each) != ABSENT for each in entries)]
    return [*(by_key[name] for name in always), *found]


def _lines(cases: Sequence[Case], clock: ClockName, columns: Sequence[Column]) -> list[Line]:
    """A line for each row of each case, with the cells that `table` prints."""
    made = []
    for place, case in enumerate(cases):
        shown = group(case.race, (), columns, clock)
        for entry, found in zip(case.race.entries, shown.lines, strict=True):
            cells = [
                _of_column(column, entry, each.text, best=each.best)
                for column, each in zip(columns, found.cells[1:], strict=True)
            ]
            made.append(Line((*_case(case, entry), *cells), keys_of(place, case, entry.row, clock)))
    return made


def _of_column(column: Column, entry: Entry, said: str, *, best: bool) -> Cell:
    numbers = [value for value in data(column, entry).values() if isinstance(value, int | float)]
    if column.key == "status":
        word, reason = verdict(entry.row)
        return cell(said, more=None if word == "ok" else reason)
    value = 1.0 if said == "baseline" else next(iter(numbers), None) if said != ABSENT else None
    return of_text(said, value, best=best)


# ---- from what a row has several of ----------------------------------------------------------------------------------


def accuracy(cases: Sequence[Case], clock: ClockName) -> Table:
    """Errors against fp64, over eager's own."""
    return _of_detail("accuracy", "Errors against fp64", cases, clock, ERRORS)


def intermediates(cases: Sequence[Case], clock: ClockName) -> Table:
    """Every value that one kernel of a call writes to memory and another reads back."""
    return _of_detail("intermediates", "Values that go through device memory", cases, clock, VALUES)


def launches(cases: Sequence[Case], clock: ClockName) -> Table:
    """Every kernel of every row, in order of execution; what its name says is in `kernels`."""
    caption = "Kernels of each row, in order; times are of the trace"
    found = _of_detail("launches", caption, cases, clock, KERNELS)
    place = len(_CASE) + [column.key for column in KERNELS.columns].index("decoded")
    lines = (each._replace(cells=each.cells[:place] + each.cells[place + 1 :]) for each in found.lines)
    return found._replace(heads=found.heads[:place] + found.heads[place + 1 :], lines=tuple(lines))


def _of_detail(key: str, caption: str, cases: Sequence[Case], clock: ClockName, detail: Detail) -> Table:
    lines = []
    for place, case in enumerate(cases):
        for entry in case.race.entries:
            for part in detail.of(entry.row):
                cells = (
                    of_text(said, part.values.get(column.key))
                    for column, said in zip(detail.columns, part.texts, strict=True)
                )
                lines.append(Line((*_case(case, entry), *cells), keys_of(place, case, entry.row, clock)))
    return Table(key, caption, (*_CASE, *(Head(c.head, number=c.right) for c in detail.columns)), tuple(lines))


def _case(case: Case, entry: Entry) -> tuple[Cell, ...]:
    return cell(case.label), cell(str(case.tokens), case.tokens), cell(name_of(entry))


# ---- kernels ---------------------------------------------------------------------------------------------------------


def kernels(cases: Sequence[Case]) -> Table:
    """Every kernel once: what its name says, and which backends run it."""
    heads = (Head("kernel"), Head("role"), Head("decoded"), Head("what the name says", words=True), Head("run by"))
    found: dict[str, tuple[Kernel, dict[str, None]]] = {}
    for case in cases:
        for row in case.rows:
            for kernel in row.kernels:
                found.setdefault(kernel.name, (kernel, {}))[1][row.backend] = None
    lines = [
        line(
            cell(shorten(name), more=name if shorten(name) != name else None),
            kernel.role,
            decoded_text(kernel.decoded),
            explain.explain(name).sentence,
            ", ".join(backends),
        )
        for name, (kernel, backends) in found.items()
    ]
    return Table("kernels", "Kernels, decoded from their names", heads, tuple(lines))
