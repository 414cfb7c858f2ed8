"""Draws the data flow of each backend as text: its kernels in order, with what each reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion import units
from mlpfusion.report.grid import shorten, tabulated, titled
from mlpfusion.report.profile.row import heading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.profile import Row, Traffic
    from mlpfusion.records.traffic import Intermediate, Step

_HEADS = ["#", "kernel", "from memory", "to memory"]


def pictures(rows: Sequence[Row], *, github: bool) -> Iterable[str]:
    """One block for each row whose launches are known; arrows mark the values that go through memory and come back."""
    for row in rows:
        if row.traffic is not None and row.traffic.steps:
            yield titled(title(heading(row), row.traffic), _picture(row.traffic, github=github), github=github)


def title(backend: str, traffic: Traffic) -> str:
    """`eager: 4 round-trips, 403 of 455 MB`."""
    trips = traffic.round_trips
    said = f"{trips} round-trip{'' if trips == 1 else 's'}"
    moved = f"{units.plain((traffic.intermediate_bytes or 0) / 1e6)} of {units.megabytes(traffic.derived_bytes or 0)}"
    notes = ["as captured into a CUDA graph"] * traffic.captured
    notes += ["confirmed by Inductor's scheduler"] * (bool(traffic.scheduled) and "scheduled" not in traffic.reasons)
    notes += ["* is read again in the backward"] * any(value.saved for value in traffic.intermediates)
    return f"{backend}: {said}, {moved}" + (f" ({'; '.join(notes)})" if notes else "")


def _picture(traffic: Traffic, *, github: bool) -> str:
    called = names(traffic.intermediates)
    cells = []
    for index, step in enumerate(traffic.steps):
        reads = [f"{called[value]} ──►" for value in step.values_read]
        rest = step.read_bytes - sum(_read(traffic, value, index) for value in step.values_read)
        writes = [f"──► {called[v]} {_megabytes(traffic.intermediates[v].bytes)}" for v in step.values_written]
        left = step.write_bytes - sum(traffic.intermediates[value].bytes for value in step.values_written)
        cells.append(
            [
                str(index + 1),
                label(step),
                ", ".join([*reads, *([f"{_megabytes(rest)}"] if rest > 0 else [])]),
                ", ".join([*writes, *([f"{_megabytes(left)}"] if left > 0 else [])]),
            ]
        )
    return tabulated(cells, _HEADS, [True, False, True, False], github=github)


def label(step: Step) -> str:
    """What a step is called: its role in the MLP, or its operator or kernel."""
    return step.role if step.role not in (None, "other") else shorten(step.op)


def names(values: Sequence[Intermediate]) -> list[str]:
    """A name for each value: its role where it alone has it, else `v` and its number; * where it is saved."""
    roles = [value.role for value in values]
    return [
        (value.role if value.role != "other" and roles.count(value.role) == 1 else f"v{number}") + "*" * value.saved
        for number, value in enumerate(values, 1)
    ]


def _read(traffic: Traffic, value: int, reader: int) -> int:
    """Bytes that a step reads of a value; all readers of one value are taken to read alike."""
    found = traffic.intermediates[value]
    return (found.moved_bytes - found.bytes) // len(found.read_by)


def _megabytes(size: int) -> str:
    return units.megabytes(size)
