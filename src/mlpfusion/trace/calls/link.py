"""Finds the launches of each call of a trace, and links each piece of device work to its launch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.errors import MeasurementError
from mlpfusion.trace.calls.call import Calls, Part, is_copy, is_launch
from mlpfusion.trace.calls.capture import captured
from mlpfusion.trace.calls.ranks import keys
from mlpfusion.trace.calls.select import Issued
from mlpfusion.trace.names import ops
from mlpfusion.trace.read.chrome import DEVICE_WORK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.device import DeviceKind
    from mlpfusion.trace.calls.call import Rows
    from mlpfusion.trace.calls.damage import Repaired
    from mlpfusion.trace.read.columns import Kind
    from mlpfusion.trace.read.kineto import Event, Trace

_CPP_KERNEL: Final = re.compile(r"(graph_\d+_)?cpp_(fused_)?\w+$")
_HOST: Final = frozenset({"op", "annotation", "api", "overhead"})


def annotated(trace: Trace, name: str) -> list[Event]:
    """The annotations called `name`, in time order; one inside another is the same call.

    Raises:
        MeasurementError: there is none.
    """
    found: list[Event] = []
    for event in trace.rows(rows_of(trace, lambda kind: kind.category == "annotation" and kind.name == name)):
        if not (found and event.start_ns < found[-1].end_ns):
            found.append(event)
    if not found:
        raise MeasurementError(f"the trace has no call: no annotation is named {name!r}")
    return found


def rows_of(trace: Trace, wanted: Callable[[Kind], bool]) -> Rows:
    """The rows whose kind is wanted, in time order."""
    import numpy as np

    return np.flatnonzero(flags(trace, wanted)[trace.kind])


def flags(trace: Trace, wanted: Callable[[Kind], bool]) -> NDArray[np.bool_]:
    """For each kind of the trace whether it is wanted."""
    import numpy as np

    return np.fromiter((wanted(kind) for kind in trace.kinds), dtype=np.bool_, count=len(trace.kinds))


def find_calls(found: Repaired, windows: Sequence[Event], device: DeviceKind, *, whole: bool = False) -> Calls:
    """The calls of a repaired trace, given the events that delimit them. With `whole` they hold all processes.

    On a GPU, work belongs to the call in which it was launched, on whatever thread and stream, or, in a trace without
    any API call, in which it ran. On a CPU leaf operators and Inductor's C++ kernels take the place of device work.

    Raises:
        MeasurementError: there is no device event at all, or on a CPU no operator in a call.
    """
    trace = found.trace
    host = by_call(trace, rows_of(trace, lambda kind: kind.category in _HOST), windows, whole=whole)
    if device == "cpu":
        return _host_calls(trace, windows, host)
    work = rows_of(trace, lambda kind: kind.category in DEVICE_WORK)
    if not len(work):
        raise MeasurementError("no GPU events in the trace: the profiler recorded the host only")
    work = _without(work, found.outside)
    api = rows_of(trace, lambda kind: kind.category == "api")
    if not len(api):
        part = by_call(trace, work, windows, whole=True)
        none = Part(part.rows[:0], part.bounds * 0)
        between = _without(work, part.rows)
        nothing = part.bounds[:-1] * 0
        calls = Calls(trace, tuple(windows), host, none, part, part, part.rows, between, missing=nothing)
    else:
        inside = by_call(trace, _outermost(trace, api), windows, whole=whole)
        calls = _device_calls(trace, windows, host, work, inside)
    return calls._replace(unknown=found.unknown)


def issued(trace: Trace) -> Issued:
    """When the API calls launched device work, and how long it ran; each launch weighs 1 where none ran."""
    import numpy as np

    api = rows_of(trace, lambda kind: kind.category == "api" and is_launch(kind.name))
    work = rows_of(trace, lambda kind: kind.category in DEVICE_WORK)
    ids, at = np.unique(trace.correlation[work], return_inverse=True)
    ran = np.bincount(at, weights=np.maximum(0, trace.duration[work]), minlength=len(ids)).astype(np.int64)
    place = np.minimum(np.searchsorted(ids, trace.correlation[api]), max(0, len(ids) - 1))
    if not len(ids) or not len(api):
        return Issued(trace.start[api], np.ones(len(api), dtype=np.int64))
    linked = (ids[place] == trace.correlation[api]) & (trace.correlation[api] != 0)
    weights = np.where(linked, ran[place], 0)
    return Issued(trace.start[api], weights if weights.any() else np.ones_like(weights))


def adopted(trace: Trace, windows: Sequence[Event]) -> tuple[list[Event], str | None]:
    """The windows, in the process whose events they delimit, and a note where that is not the one they are of.

    In a container one process can have two ids: annotations bear the one of its namespace, operators the host's.
    """
    import numpy as np

    for category in ("api", "op"):
        rows = rows_of(trace, lambda kind, wanted=category: kind.category == wanted)  # type: ignore[misc]
        inside = by_call(trace, rows, windows, whole=True).rows
        if not len(inside):
            continue
        numbers = np.bincount(trace.place[inside], minlength=len(trace.places))
        counts: dict[int | str, int] = {}
        for number in np.flatnonzero(numbers).tolist():
            counts[trace.places[number].pid] = counts.get(trace.places[number].pid, 0) + int(numbers[number])
        own = windows[0].pid
        if own in counts:
            break
        pid = max(counts, key=lambda one: counts[one])
        theirs = [place for place in np.flatnonzero(numbers).tolist() if trace.places[place].pid == pid]
        tid = trace.places[max(theirs, key=numbers.__getitem__)].tid
        note = f"the calls are annotated in process {own}, but their events are of process {pid}: taken for one process"
        return [msgspec.structs.replace(one, pid=pid, tid=tid) for one in windows], note
    return list(windows), None


def _device_calls(trace: Trace, windows: Sequence[Event], host: Part, work: Rows, inside: Part) -> Calls:
    import numpy as np

    api = rows_of(trace, lambda kind: kind.category == "api")
    joins, unsure = keys(trace, api, work, windows[0].pid)
    linked = work[np.isin(joins[work], joins[api]) & (joins[work] != 0)]
    orphans = len(work) - len(linked)
    work = work[np.argsort(joins[work], kind="stable")]
    asked = joins[inside.rows]
    first = np.searchsorted(joins[work], asked, side="left")
    count = np.where(asked == 0, 0, np.searchsorted(joins[work], asked, side="right") - first)
    is_one = flags(trace, lambda kind: is_launch(kind.name))[trace.kind[inside.rows]] | (count > 0)
    launches = _kept(inside, is_one)
    first, count = first[is_one], count[is_one]
    copies = flags(trace, lambda kind: is_copy(kind.name))[trace.kind[launches.rows]]
    recorded = captured(trace, launches.rows) & (count == 0)
    # For each launch its range of `work`, one after the other.
    ends = np.cumsum(count)
    at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - ends + count, count)
    done, by = work[at], np.repeat(launches.rows, count)
    bounds = np.concatenate(([0], ends))[launches.bounds]
    return Calls(
        trace,
        tuple(windows),
        host,
        inside,
        launches,
        Part(done, bounds),
        launched_by=by,
        between=_without(work[np.isin(joins[work], joins[api])], done),
        missing=np.diff(np.concatenate(([0], np.cumsum((count == 0) & ~copies & ~recorded)))[launches.bounds]),
        orphans=orphans,
        unsure=int(np.count_nonzero(np.isin(done, unsure))),
        early=int(np.count_nonzero(trace.start[done] < trace.start[by])),
        captured=np.diff(np.concatenate(([0], np.cumsum(recorded)))[launches.bounds]),
    )


def _host_calls(trace: Trace, windows: Sequence[Event], host: Part) -> Calls:
    computing = flags(trace, lambda kind: kind.category == "op" and _computes(kind.name))
    candidates = _kept(host, computing[trace.kind[host.rows]])
    work = _kept(candidates, _uncovered(trace, candidates))
    if not len(work.rows):
        seen = len(rows_of(trace, lambda kind: kind.category == "op"))
        why = f"it has {seen} elsewhere, or that only make views" if seen else "the profiler recorded no CPU activity"
        raise MeasurementError(f"no operators that compute in the trace's calls: {why}")
    none = Part(host.rows[:0], host.bounds * 0)
    nothing = work.bounds[:-1] * 0
    return Calls(trace, tuple(windows), host, none, work, work, work.rows, none.rows, missing=nothing)


def by_call(trace: Trace, rows: Rows, windows: Sequence[Event], *, whole: bool) -> Part:
    """The rows, given by time, that start inside each call, in the call's process."""
    import numpy as np

    starts = np.array([window.start_ns for window in windows], dtype=np.int64)
    ends = np.array([window.end_ns for window in windows], dtype=np.int64)
    at = trace.start[rows]
    index = np.searchsorted(starts, at, side="right") - 1
    inside = (index >= 0) & (at < ends[index])
    if not whole:
        numbers = {pid: number for number, pid in enumerate({window.pid for window in windows})}
        process = np.array([numbers.get(place.pid, -1) for place in trace.places])
        inside &= process[trace.place[rows]] == np.array([numbers[window.pid] for window in windows])[index]
    return Part(rows[inside], np.searchsorted(index[inside], np.arange(len(windows) + 1)))


def _kept(part: Part, wanted: NDArray[np.bool_]) -> Part:
    import numpy as np

    return Part(part.rows[wanted], np.concatenate(([0], np.cumsum(wanted)))[part.bounds])


def _without(rows: Rows, others: Rows) -> Rows:
    import numpy as np

    return rows[~np.isin(rows, others)]


def _outermost(trace: Trace, api: Rows) -> Rows:
    """API calls by start, without those that another one made (a runtime call's driver call has its correlation)."""
    import numpy as np

    order = api[np.argsort(trace.place[api], kind="stable")]
    place, correlation = trace.place[order], trace.correlation[order]
    end = trace.start[order] + trace.duration[order]
    made = np.zeros(len(order), dtype=np.bool_)
    made[1:] = (
        (place[1:] == place[:-1])
        & (correlation[1:] == correlation[:-1])
        & (correlation[1:] != 0)
        & (end[1:] <= end[:-1])
    )
    return np.sort(order[~made])


def _uncovered(trace: Trace, operators: Part) -> NDArray[np.bool_]:
    """Which of the operators, those that compute, are the outermost: what is inside a leaf belongs to it."""
    import numpy as np

    rows = operators.rows
    starts, durations, places = (column[rows].tolist() for column in (trace.start, trace.duration, trace.place))
    covered: dict[int, int] = {}
    found = np.zeros(len(rows), dtype=np.bool_)
    for index, (start, duration, place) in enumerate(zip(starts, durations, places, strict=True)):
        if start >= covered.get(place, start):
            covered[place] = start + duration
            found[index] = True
    return found


def _computes(name: str) -> bool:
    """Whether an operator computes: views and factories do not, the work of composites shows inside them."""
    if _CPP_KERNEL.match(name):
        return True
    space, separator, op = name.partition("::")
    if not separator or space in ("autograd", "torch") or not op.isidentifier():
        return False  # Dynamo's and the autograd engine's own events, autograd functions
    return not (op in ops.VIEWS or op in ops.FACTORIES or op in ops.QUERIES or op in ops.COMPOSITES)
