"""Splits the time in which the device idled in a call by what the host did meanwhile."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.records.trace import DeviceUse
from mlpfusion.trace.analysis.frames import by_name, shares
from mlpfusion.trace.analysis.spans import Spans, both, own_ns, union, without
from mlpfusion.trace.calls.busy import device_rows, occupancy
from mlpfusion.trace.calls.link import flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.trace import Share
    from mlpfusion.trace.calls.call import Calls, Rows
    from mlpfusion.trace.calls.waits import Waits
    from mlpfusion.trace.read.kineto import Trace

NO_EVENT: Final = "no event"
_MOST: Final = 8  # of what the host did


class Meanwhile(NamedTuple):
    """When the main device idled in a call, and what the host did then.

    `following` has for each gap the row of the work that ended it, or -1. `working` are the times in which the host
    worked, by thread, `waiting` those in which it waited for the device, `launched` the ns after the launch of what
    comes next, and `last` is when the call's last launch began.
    """

    gaps: Spans
    following: Rows
    working: list[tuple[int, Spans]]
    launched: int
    waiting: Spans
    last: int


def device_use(calls: Calls, used: Sequence[int], waited: Waits) -> DeviceUse:
    """How the device and, while that idled, the host spent the used call whose idle share is the median (lower of two).

    While the device idles the host is at work, or waits for the device, or has already launched what comes next; that
    is judged on the thread that makes this launch, or on the call's own where this one does nothing.
    """
    found = occupancy(calls)
    index = sorted(used, key=lambda call: (found.idle[call] / (found.ends[call] - found.begins[call]), call))[
        (len(used) - 1) // 2
    ]
    host = meanwhile(calls, int(found.begins[index]), int(found.ends[index]), index, waited)
    working, waiting = host.working, host.waiting
    tail = sum(int((one.end - one.start)[one.start >= host.last].sum()) for _, one in working)
    late = waiting.start >= host.last
    final = int((waiting.end - waiting.start)[late].sum())
    return DeviceUse(
        call=index,
        length_us=int(found.ends[index] - found.begins[index]) / 1000,
        own_us=int(found.own[index]) / 1000,
        others_us=int(found.others[index]) / 1000,
        orphans_us=int(found.orphans[index]) / 1000,
        idle_us=int(found.idle[index]) / 1000,
        working_us=sum(spans.total for _, spans in working) / 1000,
        tail_us=tail / 1000,
        waiting_us=(waiting.total - final) / 1000,
        final_wait_us=final / 1000,
        launched_us=host.launched / 1000,
        did=_did(calls, index, working),
    )


def meanwhile(calls: Calls, begin: int, end: int, index: int, waits: Waits) -> Meanwhile:
    """What the host did while the main device idled in a call, which lasts from `begin` to `end`, in ns."""
    import numpy as np

    trace = calls.trace
    gaps, following = _gaps(calls, begin, end)
    launches = np.full(len(trace.start), -1)
    launches[calls.work.of(index)] = calls.launched_by[calls.work.bounds[index] : calls.work.bounds[index + 1]]
    by = np.where(following >= 0, launches[following], -1)
    by[trace.start[by] >= gaps.end] = -1  # before its launch: the clocks disagree
    own = _place(trace, calls, index)
    place = np.where(by >= 0, trace.place[by], own)
    returned = trace.start[by] + trace.duration[by]
    reached = np.where(by >= 0, np.clip(returned, gaps.start, gaps.end), gaps.end)
    launched = int((gaps.end - reached).sum())
    api = calls.api.of(index)
    stopped = api[waits.waiting[calls.api.bounds[index] : calls.api.bounds[index + 1]]]
    working: list[tuple[int, Spans]] = []
    waited = []
    for thread in np.unique(place).tolist():
        here = (place == thread) & (reached > gaps.start)
        idle = Spans(gaps.start[here], reached[here])
        active = idle if thread == own else both(idle, _covered(trace, _outer(calls, index, thread)))
        for number, spans in ((thread, active), (own, without(idle, active))):
            there = _covered(trace, stopped[trace.place[stopped] == number])
            waited.append(both(spans, there))
            working.append((number, without(spans, there)))
    if not waited:
        waited.append(Spans(gaps.start[:0], gaps.end[:0]))
    waiting = Spans(np.concatenate([one.start for one in waited]), np.concatenate([one.end for one in waited]))
    launches_here = calls.launches.of(index)
    last = int(trace.start[launches_here].max()) if len(launches_here) and len(api) else begin
    return Meanwhile(gaps, following, working, launched, waiting, last)


def _gaps(calls: Calls, begin: int, end: int) -> tuple[Spans, Rows]:
    """When the main device idled in a stretch, and for each time the row of the work that ended it, or -1."""
    import numpy as np

    trace = calls.trace
    rows = device_rows(calls)
    rows = rows[(trace.start[rows] < end) & (trace.start[rows] + trace.duration[rows] > begin)]
    start, stop = trace.start[rows], trace.start[rows] + trace.duration[rows]
    reached = np.concatenate(([begin], np.maximum.accumulate(np.maximum(stop, begin))))
    until = np.concatenate((start, [end]))
    idle = until > reached
    following = np.concatenate((rows, [-1]))
    return Spans(reached[idle], until[idle]), following[idle]


def _place(trace: Trace, calls: Calls, index: int) -> int:
    """The place of the call's own thread, -1 if nothing else is there."""
    window = calls.windows[index]
    here = [number for number, place in enumerate(trace.places) if (place.pid, place.tid) == (window.pid, window.tid)]
    return here[0] if here else -1


def _outer(calls: Calls, index: int, place: int) -> Rows:
    rows = calls.host.of(index)
    found: Rows = rows[calls.trace.place[rows] == place]
    return found


def _did(calls: Calls, index: int, working: Sequence[tuple[int, Spans]]) -> tuple[Share, ...]:
    """The host events' own time in these intervals by name, most first, and that in no event at all.

    Where the trace has Python's frames, the time in no operator and no API call is theirs.
    """
    import numpy as np

    trace = calls.trace
    framed = len(trace.frames.start) > 0
    named = flags(trace, lambda kind: kind.category in ("op", "api", "overhead") or not framed)
    times: Counter[str] = Counter()
    for place, spans in working:
        rows = _outer(calls, index, place)
        begin, end = calls.windows[index].start_ns, calls.windows[index].end_ns
        around = (trace.start[rows] <= begin) & (trace.start[rows] + trace.duration[rows] >= end)
        rows = rows[~around & named[trace.kind[rows]]]  # what is around the whole call says nothing
        start = trace.start[rows]
        own = own_ns(spans, start, start + trace.duration[rows])
        total = np.bincount(trace.kind[rows], weights=own, minlength=len(trace.kinds))
        for kind in np.flatnonzero(total).tolist():
            times[trace.kinds[kind].name] += int(total[kind])
        in_frames, in_none = by_name(trace, place, without(spans, _covered(trace, rows)))
        times.update(in_frames)
        times[NO_EVENT] += in_none
    return shares({name: ns for name, ns in times.items() if ns}, _MOST)


def _covered(trace: Trace, rows: Rows) -> Spans:
    """The union of the events, given by start."""
    return union(trace.start[rows], trace.start[rows] + trace.duration[rows])
