"""Derives findings about the trace itself: lost events, work without a launch, the profiler's own pauses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mlpfusion.records.trace import Finding
from mlpfusion.trace.findings.words import counted, tallied

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.trace import Reading

_BUFFERS: Final = re.compile(r"Activity Buffer Request|Buffer Flush|Command Buffer Full", re.IGNORECASE)


def of_trace(reading: Reading) -> Iterable[Finding]:
    """All findings about the trace itself."""
    for rule in (_missing, _orphans, _buffers):
        yield from rule(reading)


def _missing(reading: Reading) -> Iterable[Finding]:
    """Events that the profiler or the file lost."""
    if reading.incomplete:
        yield Finding(
            id="missing_events",
            seen=reading.incomplete,
            means="counts and times per call are incomplete",
            do="record fewer events (shorter schedule, no stacks), and synchronise at the end",
            cost_us=reading.call_us,
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
