"""What is rare in a reading: faults, notes, damage, and work outside the calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.report.grid import middle_out
from mlpfusion.trace.names.shown import told_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.trace import Reading, Tally

_TALLIES: Final = 8


def asides(reading: Reading) -> Iterable[str]:
    """A line for each."""
    for fault in reading.analysis.faults:
        yield f"fault: {fault}"
    for note in reading.notes:
        yield f"note: {note}"
    if reading.pre_ops_reason is not None:
        yield f"time before the first launch: not known: {reading.pre_ops_reason}"
    for region in reading.regions if len(reading.regions) > 1 else ():
        yield f"compiled region {region.id}: {region.calls} calls, from number {region.first} to {region.last}"
    for what, tallies in (
        ("the profiler's own, in calls", reading.overhead),
        ("compiling, in calls", reading.compiling),
        ("on the device, launched outside the calls", reading.between_calls),
    ):
        if tallies:
            yield f"{what}: {_tallied(tallies)}"
    for damage in reading.integrity.damage:
        yield f"damage at byte {damage.offset}: {damage.what}: {damage.reason}"


def _tallied(tallies: Sequence[Tally]) -> str:
    names = told_apart(one.name for one in tallies[:_TALLIES])
    shown = [
        f"{one.count}x {middle_out(names[one.name])} ({units.microseconds(one.total_us)})" for one in tallies[:_TALLIES]
    ]
    return ", ".join(shown) + (f" and {len(tallies) - _TALLIES} more" if len(tallies) > _TALLIES else "")
