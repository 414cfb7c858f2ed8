"""Renders a profile as text, GitHub Markdown, CSV or JSON tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from mlpfusion.errors import UsageError
from mlpfusion.report import speedup
from mlpfusion.report.grid import FORMATS, csv_text, decoded_text, kernel_time, shorten, tabulated, titled
from mlpfusion.report.profile.brief import brief
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of
from mlpfusion.report.profile.columns.every import all_columns, cell
from mlpfusion.report.profile.columns.speed import BACKEND
from mlpfusion.report.profile.conclusion import conclusion
from mlpfusion.report.profile.data_flow import pictures
from mlpfusion.report.profile.legend import legend
from mlpfusion.report.profile.notes import notes
from mlpfusion.report.profile.roofline import roofline
from mlpfusion.report.profile.row import heading
from mlpfusion.spec import one_of
from mlpfusion.storage import results
from mlpfusion.storage.letters import code, escaped, markdown, printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.profile.columns.column import Column, Group, Value

COLUMNS: Final = (BACKEND.key, *(column.key for column in all_columns()))

# Former names of columns, and their replacements.
RENAMED: Final = {
    "vs_eager": f"'speedup_vs_eager': eager's time / the backend's, so that {speedup.DIRECTION}",
    "of_limit": "'of_roofline': minimum time at measured peak rates / kernel time",
}

_GROUPS: Final[dict[Group, str]] = {"speed": "Speed", "host": "Host", "memory": "Memory, accuracy, setup"}


def render(
    profile: Profile,
    fmt: str = "text",
    columns: Sequence[str] | None = None,
    *,
    full: bool = False,
    source: str | None = None,
) -> str:
    """A profile in one of `FORMATS`; ends with a newline.

    Text and GitHub Markdown hold one table of the rows that ran and a conclusion, or all there is if `full`, or the
    named columns of every row. CSV and JSON hold every row, with all columns or the named ones. `source` is the file
    that the profile is in, for the commands of the conclusion.

    Raises:
        UsageError: no such format or column, or `full` with columns.
    """
    one_of("format", fmt, FORMATS)
    clock = _ratio_clock(profile)
    if columns is not None:
        check_columns(columns, full=full)
    if fmt == "json" and columns is None:
        return results.encode(profile)
    by_name = {column.key: column for column in (BACKEND, *all_columns(clock))}
    named = None if columns is None else [by_name[key] for key in columns]
    if fmt in ("csv", "json"):
        data = [_flat(profile, row, named or all_columns(clock)) for row in profile.rows]
        return (
            csv_text(data) if fmt == "csv" else escaped(json.dumps({"rows": data}, indent=2, ensure_ascii=False)) + "\n"
        )
    github = fmt == "github"
    if named is not None:
        blocks = _chosen(profile, named, clock, github=github)
    elif full:
        blocks = _full(profile, clock, github=github)
    else:
        blocks = _brief(profile, clock, source=source, github=github)
    return printable("\n\n".join(block for block in blocks if block) + "\n")


def check_columns(columns: Sequence[str], *, full: bool = False) -> None:
    """Raise a `UsageError` unless every name is a column, none comes twice, and not all is wanted as well."""
    if full:
        raise UsageError("--full shows all columns: give it or --columns, not both")
    for index, key in enumerate(columns):
        if key in RENAMED:
            raise UsageError(f"column {key!r} is now {RENAMED[key]}")
        one_of("column", key, COLUMNS)
        if key in columns[:index]:
            raise UsageError(f"column {key!r} is given twice")


# ---- for programs ----------------------------------------------------------------------------------------------------


def _flat(profile: Profile, row: Row, columns: Iterable[Column]) -> dict[str, Value]:
    """One row as plain values; the machine and the versions travel with every line."""
    work, spec = profile.workload, profile.workload.spec
    flat: dict[str, Value] = {
        "device": profile.device.name,
        "device_kind": profile.device.kind,
        "torch": profile.environment.torch,
        "triton": profile.environment.triton,
        "created": profile.created,
        "batch": work.batch,
        "seq": work.seq,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "activation": spec.activation,
        "dtype": spec.dtype,
        "bias": spec.bias,
        "mode": work.mode,
        "tokens": work.tokens,
        "row_tokens": row.tokens,
        "emulated": row.emulated,
        "backend": row.backend,
    }
    for column in columns:
        flat.update(column.data(row))
    return flat


# ---- for readers -----------------------------------------------------------------------------------------------------


def _brief(profile: Profile, clock: ClockName, *, source: str | None, github: bool) -> list[str]:
    """The one table of the rows that ran, and the conclusion."""
    text, shown = brief(profile.rows, clock, github=github)
    return [
        legend(profile, clock, shown, github=github),
        text,
        conclusion(profile, clock, source=source, github=github),
    ]


def _chosen(profile: Profile, columns: Sequence[Column], clock: ClockName, *, github: bool) -> list[str]:
    """The named columns of every row."""
    shown = [column.key for column in columns]
    return [
        legend(profile, clock, shown, github=github),
        _table(profile.rows, columns, github=github),
        _listed(notes(profile.rows, shown), github=github),
    ]


def _full(profile: Profile, clock: ClockName, *, github: bool) -> list[str]:
    """All that a profile holds: a table for each group of columns, kernels, the data flow, the roofline, all notes."""
    tables, shown = [], []
    for group, title in _GROUPS.items():
        columns = [
            column
            for column in all_columns(clock)
            if column.group == group and any(column.text(row) != ABSENT for row in profile.rows)
        ]
        if columns:
            tables.append(titled(title, _table(profile.rows, columns, github=github), github=github))
            shown += [column.key for column in columns]
    kernels = any(row.kernels for row in profile.rows)
    if kernels:
        tables.append(titled("Kernels", _kernels(profile.rows, github=github), github=github))
    tables += pictures(profile.rows, github=github)
    reached = roofline(profile.rows, github=github)
    tables += [] if reached is None else [titled("Roofline", reached, github=github)]
    head = legend(profile, clock, shown, github=github, kernels=kernels)
    return [head, *tables, _listed(notes(profile.rows), github=github)]


def _table(rows: Sequence[Row], columns: Sequence[Column], *, github: bool) -> str:
    both = [BACKEND, *(column for column in columns if column.key != BACKEND.key)]
    cells = [[cell(column, row) for column in both] for row in rows]
    return tabulated(cells, [c.head for c in both], [c.right for c in both], github=github)


def _listed(lines: Iterable[str], *, github: bool) -> str:
    said = [" ".join(line.split()) for line in lines]
    return "\n".join(f"- {markdown(line)}" if github else line for line in said)


def _kernels(rows: Sequence[Row], *, github: bool) -> str:
    cells = [
        [
            heading(row) if index == 0 else "",
            str(index + 1),
            kernel.role,
            code(shorten(kernel.name)) if github else shorten(kernel.name),
            decoded_text(kernel.decoded),
            kernel_time(kernel),
        ]
        for row in rows
        for index, kernel in enumerate(row.kernels)
    ]
    heads = ["backend", "#", "role", "kernel", "decoded", "µs [p20–p80]"]
    return tabulated(cells, heads, [False, True, False, False, False, True], github=github)


def _ratio_clock(profile: Profile) -> ClockName:
    for name in CLOCKS:
        if any((clock := clock_of(row, name)) and clock.ratio_to_eager for row in profile.rows):
            return name
    return CLOCKS[0]
