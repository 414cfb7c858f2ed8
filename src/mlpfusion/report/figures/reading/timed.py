"""Picks the rows that have a time by one clock, and says which have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlpfusion.report.figures.reading import words
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Row
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.report.profile.columns.clocks import ClockName


class Timed(NamedTuple):
    """One row with a time. Emulated rows have none that may stand beside a measured one."""

    shape: Shape
    row: Row
    clock: Clock


def pick(shapes: Sequence[Shape], wanted: ClockName | None) -> tuple[ClockName, list[Timed]]:
    """The clock wanted, or the first that most rows have, and every row with a time by it."""
    found = {name: _by(shapes, name) for name in (CLOCKS if wanted is None else (wanted,))}
    best = max(found, key=lambda name: len(found[name]))  # of equals the first
    return best, found[best]


def _by(shapes: Sequence[Shape], name: ClockName) -> list[Timed]:
    return [
        Timed(shape, row, clock)
        for shape in shapes
        for row in shape.rows
        if row.status == "ok" and not row.emulated and (clock := clock_of(row, name)) is not None
    ]


def absent(shapes: Sequence[Shape], name: ClockName) -> tuple[str, ...]:
    """One line for each backend that has no time by this clock in some shape, with the reason where it is told."""
    said: dict[str, list[str]] = {}
    for shape in shapes:
        for row in shape.rows:
            reason = _why(row, name)
            if reason is not None:
                said.setdefault(f"{row.backend}: {' '.join(reason.split())}", []).append(shape.path)
    return tuple(map(words.note, said))


def _why(row: Row, name: ClockName) -> str | None:
    if row.emulated:
        return "emulated, which is not ranked with what was measured"
    if row.status != "ok":
        return f"{row.status}: {row.reason or 'no reason is recorded'}"
    if clock_of(row, name) is None:
        reason = row.clocks.reasons.get(name) if row.clocks is not None else None
        return f"no {name}: {reason or 'not measured'}"
    return None
