"""Lays races out as a table: a line for each backend of each race, and the means over shapes below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.report.profile.columns.speed import BACKEND
from mlpfusion.report.table import averages
from mlpfusion.report.table.columns import RANKED, SPEEDUP, data, text
from mlpfusion.report.table.model import Cell, Column, Group, Line, Table
from mlpfusion.report.table.shapes import file_of, title, varying
from mlpfusion.stages.tabulate.rank import Ranked, rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.profile.columns.column import Column as Shown
    from mlpfusion.report.table.model import Value
    from mlpfusion.report.table.shapes import Field
    from mlpfusion.stages.tabulate.races import Entry, Race


def laid_out(races: Sequence[Race], columns: Sequence[Shown], clock: ClockName, baseline: str) -> Table:
    """The table of races in their order, with the given columns after what tells the rows apart."""
    fields = varying(races)
    columns = [each for each in columns if each.key != BACKEND.key]
    heads = [
        *(Column(field.key, field.head, field.right) for field in fields),
        Column(BACKEND.key, BACKEND.head),
        *(Column(column.key, column.head, column.right) for column in columns),
    ]
    groups = [group(race, fields, columns, clock) for race in races]
    if SPEEDUP in {column.key for column in columns}:
        groups += averages.groups(races, fields, columns, clock, baseline)
    return Table(title(races), tuple(heads), tuple(each for each in groups if each.lines))


def marks(entries: Sequence[Entry], columns: Sequence[Shown], clock: ClockName) -> dict[str, Ranked]:
    """The ranking by each column that has one: the clocks, and the speedup by its clock."""
    found: dict[str, Ranked] = {column.key: rank(entries, column.key) for column in columns if column.key in RANKED}
    if clock in RANKED and SPEEDUP in {column.key for column in columns}:
        found[SPEEDUP] = rank(entries, clock)
    return found


def name_of(entry: Entry) -> str:
    """A backend's name for readers: what was not measured says so beside it, whatever the columns."""
    return f"{entry.name} ({entry.standing})" if entry.standing in ("predicted", "emulated") else entry.name


def group(race: Race, fields: Sequence[Field], columns: Sequence[Shown], clock: ClockName) -> Group:
    """The lines of one race: the fields, the backend, and the columns, the best of each marked."""
    ranked = marks(race.entries, columns, clock)
    stub = tuple(Cell(str(field.value(race))) for field in fields)
    lines = []
    for entry in race.entries:
        cells = [Cell(text(column, entry), _is_best(entry, ranked.get(column.key))) for column in columns]
        lines.append(Line((*stub, Cell(name_of(entry)), *cells), _values(race, entry, columns, ranked), entry.standing))
    return Group(tuple(lines))


def _is_best(entry: Entry, ranked: Ranked | None) -> bool:
    return ranked is not None and entry.name in ranked.best


def _values(race: Race, entry: Entry, columns: Sequence[Shown], ranked: dict[str, Ranked]) -> dict[str, Value]:
    """One row in full precision; the machine, the versions and the file travel with every line."""
    flat = {**of_race(race), "row_tokens": entry.row.tokens, "backend": entry.name, "kind": entry.standing}
    flat["reason"] = entry.row.reason
    for column in columns:
        flat.update(data(column, entry))
        if column.key in ranked:
            found = ranked[column.key]
            flat[f"{column.key}_best"] = entry.name in found.best if entry.name in found.among else None
    return flat


def of_race(race: Race) -> dict[str, Value]:
    """What all rows of a race share, in full precision."""
    work, spec = race.work, race.work.spec
    return {
        "file": file_of(race),
        "sha256": race.source.digest,
        "device": race.device,
        "device_kind": race.device_kind,
        "torch": race.torch,
        "triton": race.triton,
        "created": race.created,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "activation": spec.activation,
        "dtype": spec.dtype,
        "bias": spec.bias,
        "mode": work.mode,
        "tokens": work.tokens,
    }
