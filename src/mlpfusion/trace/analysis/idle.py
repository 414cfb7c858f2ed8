"""Splits the time in which the device idled in a call by what the host did meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.records.trace import DeviceUse, Share
from mlpfusion.trace.calls.busy import device_rows, occupancy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.calls.busy import Occupancy
    from mlpfusion.trace.calls.call import Calls, Rows
    from mlpfusion.trace.calls.waits import Waits
    from mlpfusion.trace.read.kineto import Trace

NO_EVENT: Final = "no event"
_MOST: Final = 8  # of what the host did
_DEEPEST: Final = 200


class Spans(NamedTuple):
    """Disjoint intervals in time order."""

    start: Rows
    end: Rows

    @property
    def total(self) -> int:
        """How long they are together."""
        return int((self.end - self.start).sum())


def device_use(calls: Calls, used: Sequence[int], waited: Waits) -> DeviceUse:
    """How the device and, while that idled, the host spent the used call whose idle share is the median (lower of two).

    While the device idles the host is at work, or waits for the device, or has already launched what comes next; that
    is judged on the thread that makes this launch, or on the call's own where this one does nothing.
    """
    found = occupancy(calls)
    index = sorted(used, key=lambda call: (found.idle[call] / (found.ends[call] - found.begins[call]), call))[
        (len(used) - 1) // 2
    ]
    working, launched, waiting, last = _host(calls, found, index, waited)
    tail = sum(int((one.end - one.start)[one.start >= last].sum()) for _, one in working)
    late = waiting.start >= last
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
        launched_us=launched / 1000,
        did=_did(calls, index, working),
    )


def _host(calls: Calls, found: Occupancy, index: int, waits: Waits) -> tuple[list[tuple[int, Spans]], int, Spans, int]:
    """The idle time in which the host worked, by thread; in ns that after the launch of what comes next; in waits.

    The last item is the time of the call's last launch.
    """
    import numpy as np

    trace = calls.trace
    begin, end = int(found.begins[index]), int(found.ends[index])
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
        active = idle if thread == own else _both(idle, _covered(trace, _outer(calls, index, thread)))
        for number, spans in ((thread, active), (own, _without(idle, active))):
            there = _covered(trace, stopped[trace.place[stopped] == number])
            waited.append(_both(spans, there))
            working.append((number, _without(spans, there)))
    if not waited:
        waited.append(Spans(gaps.start[:0], gaps.end[:0]))
    waiting = Spans(np.concatenate([one.start for one in waited]), np.concatenate([one.end for one in waited]))
    launches_here = calls.launches.of(index)
    last = int(trace.start[launches_here].max()) if len(launches_here) and len(api) else begin
    return working, launched, waiting, last


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
    """The host events' own time in these intervals by name, most first, and that in no event at all."""
    import numpy as np

    trace = calls.trace
    total = np.zeros(len(trace.kinds) + 1)
    for place, spans in working:
        rows = _outer(calls, index, place)
        begin, end = calls.windows[index].start_ns, calls.windows[index].end_ns
        around = (trace.start[rows] <= begin) & (trace.start[rows] + trace.duration[rows] >= end)
        rows = rows[~around]  # what is around the whole call says nothing
        start = trace.start[rows]
        own = _within(spans, start, start + trace.duration[rows])
        parent = _parents(start, start + trace.duration[rows])
        total[-1] += spans.total - own[parent < 0].sum()
        np.subtract.at(own, parent[parent >= 0], own.copy()[parent >= 0])
        total[:-1] += np.bincount(trace.kind[rows], weights=np.maximum(own, 0), minlength=len(trace.kinds))
    by_name: dict[str, float] = {}
    for number in np.flatnonzero(total > 0).tolist():
        name = trace.kinds[number].name if number < len(trace.kinds) else NO_EVENT
        by_name[name] = by_name.get(name, 0.0) + float(total[number]) / 1000
    most = sorted(by_name.items(), key=lambda item: (-item[1], item[0]))[:_MOST]
    return tuple(Share(name=name, us=us) for name, us in most)


def _parents(start: Rows, end: Rows) -> NDArray[np.int64]:
    """For each interval of a thread, given by start and the longest first, the innermost around it, or -1."""
    import numpy as np

    depth = np.arange(len(start)) - np.searchsorted(np.sort(end), start, side="right")
    parent = np.full(len(start), -1)
    above = np.zeros(0, dtype=np.int64)
    for level in range(min(int(depth.max(initial=-1)) + 1, _DEEPEST)):
        here = np.flatnonzero(depth == level)
        if level:
            before = np.searchsorted(above, here) - 1
            known = before >= 0
            parent[here[known]] = above[before[known]]
        above = here
    return parent


# ---- intervals -------------------------------------------------------------------------------------------------------


def _covered(trace: Trace, rows: Rows) -> Spans:
    """The union of the events, given by start."""
    import numpy as np

    start, end = trace.start[rows], trace.start[rows] + trace.duration[rows]
    if not len(rows):
        return Spans(start, end)
    reached = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reached[:-1]))
    return Spans(start[first], np.append(reached[:-1][first[1:]], reached[-1]))


def _pieces(spans: Spans, others: Spans) -> tuple[Spans, NDArray[np.bool_]]:
    """`spans` cut where `others` begin and end, and which pieces are in those."""
    import numpy as np

    cuts = np.unique(np.concatenate((*spans, *others)))
    low, high = cuts[:-1], cuts[1:]
    wanted = _holds(spans, low)
    return Spans(low[wanted], high[wanted]), _holds(others, low[wanted])


def _holds(spans: Spans, instants: Rows) -> NDArray[np.bool_]:
    import numpy as np

    if not len(spans.start):
        return np.zeros(len(instants), dtype=np.bool_)
    before = np.searchsorted(spans.start, instants, side="right") - 1
    found: NDArray[np.bool_] = (before >= 0) & (instants < spans.end[before])
    return found


def _both(spans: Spans, others: Spans) -> Spans:
    pieces, inside = _pieces(spans, others)
    return Spans(pieces.start[inside], pieces.end[inside])


def _without(spans: Spans, others: Spans) -> Spans:
    pieces, inside = _pieces(spans, others)
    return Spans(pieces.start[~inside], pieces.end[~inside])


def _within(spans: Spans, start: Rows, end: Rows) -> NDArray[np.float64]:
    """For each interval how much of it is in `spans`."""
    import numpy as np

    if not len(spans.start):
        return np.zeros(len(start))
    lengths = np.concatenate(([0], np.cumsum(spans.end - spans.start)))

    def until(instants: Rows) -> Rows:
        before = np.searchsorted(spans.start, instants, side="right")
        last = np.maximum(before - 1, 0)
        partly = np.clip(instants - spans.start[last], 0, spans.end[last] - spans.start[last])
        total: Rows = np.where(before > 0, lengths[last] + partly, 0)
        return total

    found: NDArray[np.float64] = (until(end) - until(start)).astype(np.float64)
    return found
