"""Lists what no cell of a profile's table can hold: reasons of rows and of absent numbers, and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.report.grid import kernel_time
from mlpfusion.report.host_load import disturbed
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of, has_spread
from mlpfusion.report.profile.columns.every import all_columns, is_shown
from mlpfusion.report.profile.row import verdict
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mlpfusion.records.profile import Row


def notes(rows: Sequence[Row], shown: Collection[str] | None = None) -> Iterator[str]:
    """The reason of each row, and what concerns the columns `shown`; None stands for all there is."""
    for row in rows:
        word, reason = verdict(row)
        if reason is not None:
            yield f"{row.backend}: {word}: {reason.removeprefix(f'{word}: ')}"
        if shown is None:
            for note in row.notes:
                yield f"{row.backend}: {note}"
        if row.traffic is not None and row.traffic.explained is not None and _in("measured_bytes", shown):
            yield f"{row.backend}: measured bytes: {row.traffic.explained}"
    if shown is None or any(column.disturbed for column in all_columns() if column.key in shown):
        yield from _disturbed(rows)
    yield from _without_spread(rows, shown)
    yield from _absent(rows, shown)


def _in(field: str, shown: Collection[str] | None) -> bool:
    return shown is None or is_shown(field, shown)


def _absent(rows: Sequence[Row], shown: Collection[str] | None) -> Iterator[str]:
    """Each reason once, with the fields that it keeps absent and the rows."""
    absent: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if verdict(row)[0] == "emulated":
            continue  # reported once for the row
        for part in (row.clocks, row.traffic, row.memory):
            for field, reason in (part.reasons if part is not None else {}).items():
                if _in(field, shown):
                    absent.setdefault((field, reason), []).append(row.backend)
    fields: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (field, reason), backends in absent.items():
        fields.setdefault((reason, tuple(backends)), []).append(field)
    for (reason, names), together in fields.items():
        yield f"{', '.join(together)}: not measured: {reason} ({', '.join(names)})"


def _disturbed(rows: Sequence[Row]) -> Iterator[str]:
    """Each race that background load disturbed, with its rows."""
    raced: dict[float, list[str]] = {}
    for row in rows:
        if row.clocks is not None and row.clocks.neighbours is not None:
            raced.setdefault(row.clocks.neighbours, []).append(row.backend)
    for share, backends in raced.items():
        sentence = disturbed(share)
        if sentence is not None:
            yield f"{sentence} ({', '.join(backends)})"


def _without_spread(rows: Sequence[Row], shown: Collection[str] | None) -> Iterator[str]:
    """What was measured too few times to be printed, and how often it was."""
    few: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        counts: dict[str, int] = {
            name: clock.n
            for name in CLOCKS
            if _in(name, shown) and (clock := clock_of(row, name)) and not has_spread(clock)
        }
        host = shown is None or not {"host_us", "bound"}.isdisjoint(shown)
        if host and row.bound is not None and not has_spread(row.bound):
            counts["host_us and bound"] = row.bound.n
        if shown is None and any(k.time_us is not None and kernel_time(k) == ABSENT for k in row.kernels):
            counts["kernel times"] = row.pre_ops.n if row.pre_ops is not None else 0
        for name, n in counts.items():
            few.setdefault((name, n), []).append(row.backend)
    for (name, n), backends in few.items():
        known = f"{n} samples" if n else "the file does not record how many samples"
        yield f"{name}: {known}; without a spread, from 20 samples on, nothing is printed ({', '.join(backends)})"
