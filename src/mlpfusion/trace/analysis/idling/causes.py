"""Says why the device idled in a call: the host was late or waited, a stream waited for another, or a short gap."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from mlpfusion.records.breakdown import IdleCauses
from mlpfusion.trace.analysis.idling.idle import meanwhile
from mlpfusion.trace.analysis.spans import Spans, within
from mlpfusion.trace.calls.busy import device_rows
from mlpfusion.trace.calls.call import is_stream_wait
from mlpfusion.trace.calls.link import rows_of

if TYPE_CHECKING:
    from mlpfusion.records.trace import DeviceUse
    from mlpfusion.trace.calls.call import Calls
    from mlpfusion.trace.calls.waits import Waits

# Two kernels in a row are 1 to 2 µs apart, and up to 5 with the profiler's time stamps: nobody is late.
SHORT_NS: Final = 5_000


def causes_of(calls: Calls, use: DeviceUse, waited: Waits) -> IdleCauses:
    """The causes of the idle time of the call that `use` is of."""
    import numpy as np

    trace = calls.trace
    begin = calls.windows[use.call].start_ns
    host = meanwhile(calls, begin, begin + round(use.length_us * 1000), use.call, waited)
    gaps, following = host.gaps, host.following
    length = gaps.end - gaps.start
    launches = np.full(len(trace.start) + 1, -1)  # the last for what nothing follows
    launches[calls.work.rows] = calls.launched_by
    by = launches[following]
    returned = np.where(by >= 0, trace.start[by] + trace.duration[by], gaps.end)
    disagree = (by >= 0) & (trace.start[by] >= gaps.end)
    # Where no launch of what follows is in the trace, or the clocks disagree, nothing is certain.
    known = ((following < 0) | (by >= 0)) & ~disagree if len(calls.api.rows) else np.zeros(len(by), dtype=np.bool_)
    long = length >= SHORT_NS
    queued = known & (by >= 0) & (returned <= gaps.start)
    late = known & ~queued & long
    order = np.argsort(host.waiting.start)
    waiting = Spans(host.waiting.start[order], host.waiting.end[order])
    waits = int(within(waiting, gaps.start[late], gaps.end[late]).sum())
    streams, candidates = 0, np.flatnonzero(queued & long).tolist()
    told = _Streams(calls, use.call) if candidates else None
    for gap in candidates:
        if told is not None and told.waited(int(following[gap]), int(by[gap]), int(gaps.start[gap])):
            streams += int(length[gap])
    idle, short, lateness = int(length.sum()), int(length[~long].sum()), int(length[late].sum())
    return IdleCauses(
        idle_us=idle / 1000,
        host_waits_us=waits / 1000,
        host_late_us=(lateness - waits) / 1000,
        stream_us=streams / 1000,
        short_us=short / 1000,
        unknown_us=(idle - short - lateness - streams) / 1000,
    )


class _Streams:
    """Tells whether work that was launched in time waited for another stream of the device."""

    def __init__(self, calls: Calls, call: int) -> None:
        self._calls = calls
        self._begin = calls.windows[call].start_ns
        trace = calls.trace
        rows = device_rows(calls)
        self._ended: dict[int, set[int]] = defaultdict(set)  # streams by when work of theirs ended
        for end, place in zip(
            (trace.start[rows] + trace.duration[rows]).tolist(), trace.place[rows].tolist(), strict=True
        ):
            self._ended[end].add(place)
        self._launched: dict[int, list[int]] = defaultdict(list)  # when the call launched, by stream
        bounds = slice(calls.work.bounds[call], calls.work.bounds[call + 1])
        launched = trace.start[calls.launched_by[bounds]]
        for at, place in zip(launched.tolist(), trace.place[calls.work.rows[bounds]].tolist(), strict=True):
            self._launched[place].append(at)
        self._waits: dict[int, list[int]] = defaultdict(list)  # when a stream was made to wait, by thread
        waits = rows_of(trace, lambda kind: kind.category == "api" and is_stream_wait(kind.name))
        for at, place in zip(trace.start[waits].tolist(), trace.place[waits].tolist(), strict=True):
            self._waits[place].append(at)

    def waited(self, work: int, launch: int, since: int) -> bool:
        """Whether the work, behind an idle time that began at `since`, waited for another stream.

        Then what ended last ran on another stream, and since its own stream's launch before the host had made a stream
        wait for an event.
        """
        trace = self._calls.trace
        place, at = int(trace.place[work]), int(trace.start[launch])
        ended = self._ended.get(since, set())
        if not ended or place in ended:
            return False
        launched = self._launched[place]  # in launch order
        before = bisect_left(launched, at)
        last = launched[before - 1] if before else self._begin
        waits = self._waits[int(trace.place[launch])]
        return bisect_left(waits, at) > bisect_left(waits, last)
