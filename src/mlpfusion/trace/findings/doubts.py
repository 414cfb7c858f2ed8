"""Derives findings about the trace itself: lost events, work without a launch, the profiler's own pauses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mlpfusion.records.trace import Finding
from mlpfusion.trace.words import NAME, counted, tallied

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.trace import Reading

_SHOWN: Final = 3
_BUFFERS: Final = re.compile(r"Activity Buffer Request|Buffer Flush|Command Buffer Full", re.IGNORECASE)


def of_trace(reading: Reading) -> Iterable[Finding]:
    """All findings about the trace itself."""
    for rule in (_missing, _damaged, _orphans, _buffers):
        yield from rule(reading)


def _missing(reading: Reading) -> Iterable[Finding]:
    """Events that the profiler or the file lost; calls that only differ lost none."""
    lossy = [odd for odd in reading.odd_calls if odd.missing or odd.lost]
    if not reading.incomplete and not lossy:
        return
    count = reading.call.count
    names = ", ".join(
        f"{odd.name[:NAME]} (number {odd.index + 1}) "
        + (f"has {odd.work} of {odd.usual_work} kernels, copies and fills" if odd.lost else _launches(odd.missing))
        for odd in lossy[:_SHOWN]
    )
    left = len(lossy) - _SHOWN
    yield Finding(
        id="missing_events",
        seen=reading.incomplete
        or f"{len(lossy)} of {counted(count, 'call')} lost events and are left out: {names}"
        + (f" and {left} more" if left > 0 else ""),
        means="counts and times per call are incomplete" + ("" if reading.incomplete else " in those calls"),
        do="record fewer events (shorter schedule, no stacks), and synchronise at the end"
        if lossy or reading.integrity.lost or reading.integrity.lost_bytes is not None
        else "record each process into a file of its own",
        cost_us=reading.call_us * (1.0 if reading.incomplete else len(lossy) / count),
    )


def _launches(missing: int) -> str:
    return f"has {missing} launch{'es' if missing > 1 else ''} without device event"


def _damaged(reading: Reading) -> Iterable[Finding]:
    """Device events whose times or correlations cannot be."""
    whole = reading.integrity
    if whole.damaged:
        calls = sum(1 for odd in reading.odd_calls if odd.damaged)
        yield Finding(
            id="damaged_events",
            seen=f"{counted(whole.damaged, 'device event')} with times or correlations that cannot be: "
            + tallied(reading.damaged)
            + (f"; {counted(calls, 'call')} left out for them" if calls else ""),
            means="the profiler wrote them wrongly; they are in no sum",
            do="trust the figures of the other calls; record again to see whether it recurs",
            cost_us=reading.call_us * calls / reading.call.count,
        )


def _orphans(reading: Reading) -> Iterable[Finding]:
    whole = reading.integrity
    cost = reading.device_use.orphans_us if reading.device_use else 0.0
    seen = [
        f"{counted(whole.orphans, 'device event')} without a launch in the trace" if whole.orphans else "",
        f"{counted(whole.early, 'device event')} that start before their launch" if whole.early else "",
    ]
    if any(seen):
        yield Finding(
            id="orphan_events",
            seen="; ".join(text for text in seen if text) + f"; work without a launch takes {cost:.0f} µs of a call",
            means="earlier work was still running when recording began, or host and device clocks disagree; no call "
            "counts it",
            do="synchronise before the first recorded step, and schedule a warm-up step",
            cost_us=cost,
        )


def _buffers(reading: Reading) -> Iterable[Finding]:
    """The profiler's own pauses inside calls."""
    tallies = [tally for tally in reading.overhead if _BUFFERS.search(tally.name)]
    if tallies:
        yield Finding(
            id="profiler_buffer",
            seen=f"inside calls: {tallied(tallies)}",
            means="the profiler paused the program to allocate or flush its event buffers",
            do="exclude those calls from host times; record fewer calls or events",
            cost_us=sum(tally.total_us for tally in tallies) / reading.call.count,
        )
