"""Marks the API calls in which the host waits for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.trace.calls.busy import unions_ns
from mlpfusion.trace.calls.call import is_blocking_copy, is_launch, is_sync
from mlpfusion.trace.calls.link import flags

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.calls.call import Calls, Rows

# A launch takes 2 to 10 µs. One that takes so many times as long as the quickest tenth of its API, and this long, was
# blocked: the queue of the device was full (1024 launches on NVIDIA's), or its copy was from pageable memory.
_BLOCKED_TIMES: Final = 10
_BLOCKED_NS: Final = 50_000
_QUICKEST: Final = 0.1


class Issue(NamedTuple):
    """For each call the nanoseconds that its host took to its last launch, without and in waits; -1 without a launch.

    `blocked` counts its launches that waited for room in the queue.
    """

    issue: Rows
    waiting: Rows
    blocked: Rows


class Waits(NamedTuple):
    """For each row of the calls' API calls whether the host waits in it, and whether that is a blocked launch."""

    waiting: NDArray[np.bool_]
    blocked: NDArray[np.bool_]


def waits(calls: Calls) -> Waits:
    """In which API calls the host waits for the device."""
    kinds = flags(calls.trace, lambda kind: is_sync(kind.name) or is_blocking_copy(kind.name))
    stuck = _blocked(calls)
    return Waits(kinds[calls.trace.kind[calls.api.rows]] | stuck | _staged(calls), stuck)


def _staged(calls: Calls) -> NDArray[np.bool_]:
    """For each row of the calls' API calls whether it is a copy of pageable memory that returns when it is done.

    Such a copy is asynchronous by its name only: `x.cpu()` waits in `cudaMemcpyAsync`.
    """
    import numpy as np

    trace, work = calls.trace, calls.work.rows
    pageable = flags(trace, lambda kind: kind.category == "memcpy" and "Pageable" in kind.name)[trace.kind[work]]
    copies, by = work[pageable], calls.launched_by[pageable]
    returned = trace.start[by] + trace.duration[by]
    waited = (trace.duration[by] >= _BLOCKED_NS) & (returned >= trace.start[copies] + trace.duration[copies])
    return np.isin(calls.api.rows, by[waited])


def _blocked(calls: Calls) -> NDArray[np.bool_]:
    """For each row of the calls' API calls whether it is a launch that was blocked while the device worked."""
    import numpy as np

    trace, rows = calls.trace, calls.api.rows
    launching = flags(trace, lambda kind: is_launch(kind.name))[trace.kind[rows]]
    long = np.zeros(len(rows), dtype=np.bool_)
    for kind in np.unique(trace.kind[rows[launching]]).tolist():
        here = launching & (trace.kind[rows] == kind)
        taken = trace.duration[rows[here]]
        long[here] = taken >= max(_BLOCKED_NS, _BLOCKED_TIMES * float(np.quantile(taken, _QUICKEST)))
    if long.any():  # without work on the device it was no wait for it, but loading, say
        middle = trace.start[rows[long]] + trace.duration[rows[long]] // 2
        work = np.concatenate((calls.work.rows, calls.between))
        order = np.argsort(trace.start[work], kind="stable")
        ends = (trace.start[work] + trace.duration[work])[order]
        reached = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], ends)))
        before = np.searchsorted(trace.start[work][order], middle, side="right")
        long[long] = reached[before] > middle
    return long


def issue(calls: Calls, found: Waits) -> Issue:
    """How long each call's host worked, and waited, until its last launch, on the threads that launch."""
    import numpy as np

    trace, count = calls.trace, len(calls.windows)
    begins = np.array([window.start_ns for window in calls.windows], dtype=np.int64)
    launched = np.repeat(np.arange(count), np.diff(calls.launches.bounds))
    last = np.full(count, -1)
    np.maximum.at(last, launched, trace.start[calls.launches.rows])
    call = np.repeat(np.arange(count), np.diff(calls.api.bounds))
    rows = calls.api.rows
    threads = len(trace.places)
    launching = np.unique(launched * threads + trace.place[calls.launches.rows])
    waiting = found.waiting & np.isin(call * threads + trace.place[rows], launching) & (trace.start[rows] < last[call])
    start, call_of = trace.start[rows[waiting]], call[waiting]
    end = np.minimum(start + trace.duration[rows[waiting]], last[call_of])
    waited = unions_ns(call_of, start, end, count)
    working = np.where(last < 0, -1, last - begins - waited)
    return Issue(working, waited, np.bincount(call[found.blocked], minlength=count))
