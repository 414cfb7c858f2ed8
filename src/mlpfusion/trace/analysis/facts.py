"""Collects facts of a trace's calls beside their kernels: API calls, streams, graphs, regions, overhead, odd calls."""

from __future__ import annotations

import re
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final

from mlpfusion.records.trace import (
    FirstCall,
    GraphReplay,
    HostEvent,
    HostUse,
    OddCall,
    Region,
    Spread,
    StreamUse,
    Tally,
)
from mlpfusion.stats import fifths
from mlpfusion.trace.calls.busy import busy_ns, stream_busy_ns, unions_ns
from mlpfusion.trace.calls.call import allocates, initialises
from mlpfusion.trace.calls.link import by_call, flags, rows_of
from mlpfusion.trace.calls.waits import issue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.trace.calls.call import Call, Calls, Rows
    from mlpfusion.trace.calls.waits import Waits
    from mlpfusion.trace.read.kineto import Trace

# A call that takes this many times as long as the median of the others, and longer than each of them, is wider.
WIDER: Final = 1.1
_ODD_SHOWN: Final = 20
# A benchmark clears the cache between its runs.
_FILL: Final = re.compile(r"Memset|FillFunctor")
_REGION: Final = re.compile(r"Torch-Compiled Region:?\s+(!?\w+/\w+)")


def spread(values: Sequence[float]) -> Spread | None:
    """How the values vary, or None without any."""
    if not values:
        return None
    p20, p80 = fifths(values)
    return Spread(n=len(values), median=median(values), low=min(values), high=max(values), p20=p20, p80=p80)


def tallies(trace: Trace, rows: Rows, *, most: int | None = None) -> tuple[Tally, ...]:
    """The events in these rows by name, those with the most time first, at most `most` names."""
    import numpy as np

    kinds, durations = trace.kind[rows], trace.duration[rows]
    counts = np.bincount(kinds, minlength=len(trace.kinds))
    totals = np.bincount(kinds, weights=durations, minlength=len(trace.kinds))
    longest = np.zeros(len(trace.kinds), dtype=np.int64)
    np.maximum.at(longest, kinds, durations)
    found: dict[str, Tally] = {}
    for number in np.flatnonzero(counts).tolist():
        name = trace.kinds[number].name
        before = found.get(name) or Tally(name=name, count=0, total_us=0.0, longest_us=0.0)
        found[name] = Tally(
            name=name,
            count=before.count + int(counts[number]),
            total_us=before.total_us + float(totals[number]) / 1000,
            longest_us=max(before.longest_us, int(longest[number]) / 1000),
        )
    return tuple(sorted(found.values(), key=lambda tally: (-tally.total_us, tally.name))[:most])


def overhead(calls: Calls) -> tuple[tuple[Tally, ...], tuple[Tally, ...]]:
    """What the profiler and lazy loading took, inside the calls and outside; the events belong to no thread."""
    import numpy as np

    rows = rows_of(calls.trace, lambda kind: kind.category == "overhead")
    inside = by_call(calls.trace, rows, calls.windows, whole=True).rows
    return tallies(calls.trace, inside), tallies(calls.trace, rows[~np.isin(rows, inside)])


def regions(calls: Calls) -> tuple[Region, ...]:
    """The compiled regions that ran in the calls, by id."""
    seen: dict[str, list[int]] = {}
    for number, kind in enumerate(calls.trace.kinds):
        found = _REGION.match(kind.name) if kind.category in ("op", "annotation") else None
        if found is None:
            continue
        part = by_call(calls.trace, rows_of(calls.trace, calls.trace.kinds[number].__eq__), calls.windows, whole=True)
        counts = part.bounds[1:] > part.bounds[:-1]
        seen.setdefault(found[1], []).extend(counts.nonzero()[0].tolist())
    return tuple(
        Region(id=name, calls=len(set(indices)), first=min(indices), last=max(indices))
        for name, indices in sorted(seen.items())
        if indices
    )


def graphs(call: Call) -> tuple[GraphReplay, ...]:
    """The graph launches of a call by API: launches of the host, and the device work under them."""
    launches = Counter(launch.name for launch in call.launches if "GraphLaunch" in launch.name)
    work = Counter((item.launch.name, item.event.category) for item in call.work)
    return tuple(
        GraphReplay(
            api=api,
            launches=count,
            kernels=work[api, "kernel"],
            memcpys=work[api, "memcpy"],
            memsets=work[api, "memset"],
        )
        for api, count in sorted(launches.items())
    )


def streams(calls: Calls, used: Sequence[int]) -> tuple[StreamUse, ...]:
    """The streams that calls use: pieces of work in the first used call, and the median busy time."""
    places = Counter(calls.trace.place[calls.work.of(used[0])].tolist())
    found = []
    for number, busy in stream_busy_ns(calls).items():
        place = calls.trace.places[number]
        found.append(
            StreamUse(
                device=str(place.pid),
                stream=str(place.tid).removeprefix("stream "),
                events=places[number],
                busy_us=median((busy[list(used)] / 1000).tolist()),
            )
        )
    return tuple(sorted(found, key=lambda use: (-use.busy_us, use.device, use.stream)))


def host_use(calls: Calls, used: Sequence[int], compiling: Rows, waited: Waits) -> HostUse | None:
    """What the host spent until a call's last launch; None without API calls or launches.

    `compiling` are the rows of compilations, given by time.
    """
    import numpy as np

    found = issue(calls, waited)
    launching = [index for index in used if found.issue[index] >= 0]
    if not launching or not len(calls.api.rows):
        return None
    allocating = rows_of(calls.trace, lambda kind: kind.category == "api" and allocates(kind.name))
    loading = rows_of(calls.trace, lambda kind: initialises(kind.name, kind.category))
    return HostUse(
        issue_us=median((found.issue[launching] / 1000).tolist()),
        waiting_us=median((found.waiting[launching] / 1000).tolist()),
        blocked=round(median(found.blocked[launching].tolist())),
        allocating_us=float(_spent_ns(calls, allocating)[launching].mean()) / 1000,
        initialising_us=median((_spent_ns(calls, np.union1d(loading, compiling))[launching] / 1000).tolist()),
    )


def _spent_ns(calls: Calls, rows: Rows) -> Rows:
    """For each call the nanoseconds that at least one of these host events takes, given by time."""
    import numpy as np

    part = by_call(calls.trace, rows, calls.windows, whole=True)
    group = np.repeat(np.arange(len(calls.windows)), np.diff(part.bounds))
    start = calls.trace.start[part.rows]
    return unions_ns(group, start, start + calls.trace.duration[part.rows], len(calls.windows))


def first_call(calls: Calls) -> FirstCall | None:
    """The first call beside the others if it is wider than each of them, on the host; None with fewer than three."""
    host = [window.duration_ns / 1000 for window in calls.windows]
    if len(host) < 3 or host[0] <= max(*host[1:], WIDER * median(host[1:])):
        return None
    busy = (busy_ns(calls) / 1000).tolist()
    return FirstCall(host_us=host[0], kernel_us=busy[0], rest_host_us=median(host[1:]), rest_kernel_us=median(busy[1:]))


def timeline(call: Call, limit: int) -> tuple[HostEvent, ...]:
    """The first `limit` host events of a call with their depth, their own time and their launches."""
    threads = {call.annotation.tid: 0}
    launches = set(call.launches)
    stacks: dict[object, list[int]] = {}
    events = call.host[:limit]
    depth, own, count = [0] * len(events), [0] * len(events), [0] * len(events)
    for index, event in enumerate(events):
        threads.setdefault(event.tid, len(threads))
        stack = stacks.setdefault(event.tid, [])
        while stack and events[stack[-1]].end_ns <= event.start_ns:
            stack.pop()
        depth[index], own[index] = len(stack), event.duration_ns
        if stack:
            own[stack[-1]] -= min(event.end_ns, events[stack[-1]].end_ns) - event.start_ns
        stack.append(index)
        if event in launches:
            for outer in stack:
                count[outer] += 1
    return tuple(
        HostEvent(
            name=event.name,
            category=event.category,  # type: ignore[arg-type]
            start_us=(event.start_ns - call.annotation.start_ns) / 1000,
            duration_us=event.duration_ns / 1000,
            self_us=max(0, own[index]) / 1000,
            depth=depth[index],
            thread=threads[event.tid],
            launches=count[index],
        )
        for index, event in enumerate(events)
    )


def odd_calls(calls: Calls, used: Sequence[int]) -> tuple[OddCall, ...]:
    """The first calls that are not among those `used`, each with the kernel that it ran most above the usual number."""
    usual = _work(calls, used[0]) if used else Counter()
    launches = _launches(calls, used[0]) if used else b""
    damaged = calls.damaged
    found = []
    for index in sorted(set(range(len(calls.windows))) - set(used))[:_ODD_SHOWN]:
        names = _work(calls, index)
        ranked = sorted(names, key=lambda name: (not _FILL.search(name), names[name] - usual[name], name))
        most = ranked[-1] if ranked else ""
        extra = names[most] - usual[most]
        rest = {name for name in {*names, *usual} - {most} if not _FILL.search(name)}
        # The same launches with a part of the usual work: a graph's replay lost events.
        partly = bool(names) and names < usual and not calls.missing[index] and _launches(calls, index) == launches
        found.append(
            OddCall(
                index=index,
                name=calls.windows[index].name,
                work=names.total(),
                usual_work=usual.total(),
                most=most,
                times=names[most],
                usual_times=usual[most],
                extra_us=_time_us(calls, index, most) * max(0, extra) / max(1, names[most]),
                others=sum(abs(names[name] - usual[name]) for name in rest),
                missing=int(calls.missing[index]),
                lost=usual.total() - names.total() if partly else 0,
                damaged=int(damaged[index]),
            )
        )
    return tuple(found)


def _launches(calls: Calls, index: int) -> bytes:
    """The sequence of a call's launches by API, to be compared."""
    kinds = calls.trace.kind[calls.launches.of(index)]
    return kinds.tobytes() if len(calls.api.rows) else b""


def _time_us(calls: Calls, index: int, name: str) -> float:
    rows = calls.work.of(index)
    here = flags(calls.trace, lambda kind: kind.name == name)[calls.trace.kind[rows]]
    return float(calls.trace.duration[rows[here]].sum()) / 1000


def _work(calls: Calls, index: int) -> Counter[str]:
    trace = calls.trace
    counts: Counter[str] = Counter()
    for kind, times in Counter(trace.kind[calls.work.of(index)].tolist()).items():
        counts[trace.kinds[kind].name] += times
    return counts
