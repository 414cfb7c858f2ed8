"""Defines a call of a trace: its device work with launches and operators, and its API calls."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from mlpfusion.trace.read.kineto import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.read.chrome import Category
    from mlpfusion.trace.read.kineto import Trace

    Rows = NDArray[np.int64]

# API calls that hand work to the device. Host functions and queries are called launches as well.
_LAUNCH: Final = re.compile(
    r"(cuda|cu|hip)(?!\w*HostFunc)(\w*Launch\w*|Memcpy\w*|Memset\w*)$"  # hipExtModuleLaunchKernel, cuMemsetD8Async
    r"|(ur|pi)\w*Enqueue(KernelLaunch|USM|Mem)\w*$|zeCommandListAppend(Launch|Memory)\w*$"  # Intel's
)
_COPY: Final = re.compile(r"(cuda|cu|hip)(Memcpy|Memset)|(ur|pi)\w*Enqueue(USM|Mem)|zeCommandListAppendMemory")
_SYNC: Final = re.compile(r"((cuda|cu|hip|ze)\w*Synchronize|urEventWait|urQueueFinish)(_ptsz)?$")
_STREAM_WAIT: Final = re.compile(r"(cuda|cu|hip)StreamWaitEvent")
# A copy that is not asynchronous returns when it is done, and so when all work before it is.
_BLOCKING_COPY: Final = re.compile(r"(cuda|cu|hip)Memcpy(?!\w*Async)")
# Memory of the device or pinned memory of the host. Stream-ordered allocation (cudaMallocAsync) is from a pool.
_ALLOCATION: Final = re.compile(
    r"(cuda|hip)(Ext)?(Malloc|Free|Host(Alloc|Free|Malloc|Register|Unregister))(?!\w*(Async|Array))\w*$"
    r"|cu(Mem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree|Host(Alloc|Register)))"
    r"(?!\w*Async)\w*$|(ur|ze)(USM|Mem)(Device|Host|Shared|)(Alloc|Free)\w*$"
)
# What a process does once: loading code, creating contexts, linking.
_INITIALISATION: Final = re.compile(
    r"(cuda|cu|hip)(Module(Load|UnloadData|Unload|GetLoading)|Library(Load|Unload)|Init|Ctx(Create|SetLimit)|Link|"
    r"DevicePrimaryCtx|DeviceReset|GetDeviceProperties|StreamCreate|GraphInstantiate)"
    r"|cudaDeviceGetDefaultMemPool|nvrtc|hiprtc"
)
_LOADING: Final = re.compile(r"Lazy Function Loading|Instrumentation|Resource", re.IGNORECASE)
_BACKWARD: Final = re.compile(r"autograd::engine::evaluate_function: |\w*Backward\d*$")


class Work(msgspec.Struct, frozen=True):
    """One piece of work of a call: a device event and its launch, or on a CPU run a leaf operator, its own launch.

    `owners` are the operators around the launch, innermost first. `backward` work is the autograd engine's.
    """

    event: Event
    launch: Event
    owners: tuple[Event, ...]
    backward: bool


class Call(msgspec.Struct, frozen=True):
    """One call: its work in launch order, and its launches, its API calls and all its host events in time order."""

    annotation: Event
    work: tuple[Work, ...]
    launches: tuple[Event, ...]
    api: tuple[Event, ...]
    host: tuple[Event, ...]


class Part(NamedTuple):
    """Rows of a trace, call after call: those of call `i` are `rows[bounds[i]:bounds[i + 1]]`."""

    rows: Rows
    bounds: Rows

    def of(self, index: int) -> Rows:
        """The rows of one call."""
        return self.rows[self.bounds[index] : self.bounds[index + 1]]


class Calls(NamedTuple):
    """All calls of a trace as columns, and what does not fit.

    `launched_by` has for each row of `work` the row of its launch, the same one where work has no separate launch.
    `missing` counts for each call its launches without work, and `captured` those that were recorded into a graph and
    ran nothing; `orphans` is work without a launch, `early` work before its launch, `unsure` work that another process
    may have launched, and `between` has the rows of work that was launched outside the calls. `unknown` are rows of
    work whose duration is not known, and 0 in the trace.
    """

    trace: Trace
    windows: tuple[Event, ...]
    host: Part
    api: Part
    launches: Part
    work: Part
    launched_by: Rows
    between: Rows
    missing: Rows
    orphans: int = 0
    early: int = 0
    unsure: int = 0
    captured: Rows | None = None
    unknown: Rows | None = None

    @property
    def damaged(self) -> Rows:
        """For each call how many pieces of its work have an unknown duration."""
        import numpy as np

        known = np.zeros(len(self.work.rows), dtype=np.int64)
        if self.unknown is not None:
            known += np.isin(self.work.rows, self.unknown)
        found: Rows = np.diff(np.concatenate(([0], np.cumsum(known)))[self.work.bounds])
        return found

    @property
    def lost(self) -> int:
        """How many launches in calls have no work."""
        return int(self.missing.sum())

    def call(self, index: int) -> Call:
        """One call with its events."""
        annotation = self.windows[index]
        rows = self.trace.rows
        host = tuple(rows(self.host.of(index)))
        numbers = self.launches.of(index)
        launches = dict(zip(numbers.tolist(), rows(numbers), strict=True))
        owners = _enclosing(list(launches.values()), [event for event in host if event.category == "op"])
        around = dict(zip(launches, owners, strict=True))
        work = []
        begin, end = self.work.bounds[index : index + 2].tolist()
        numbers = self.work.rows[begin:end]
        for row, number, event in zip(
            numbers.tolist(), self.launched_by[begin:end].tolist(), rows(numbers), strict=True
        ):
            launch, owned = launches[number], around[number]
            backward = launch.tid != annotation.tid or any(_BACKWARD.match(owner.name) for owner in owned)
            work.append(Work(event=launch if row == number else event, launch=launch, owners=owned, backward=backward))
        api = tuple(rows(self.api.of(index)))
        return Call(annotation=annotation, work=tuple(work), launches=tuple(launches.values()), api=api, host=host)


def is_launch(api: str) -> bool:
    """Whether an API call is one that hands a kernel, a graph, a copy or a fill to the device."""
    return _LAUNCH.match(api) is not None


def is_copy(api: str) -> bool:
    """Whether a launch is a copy or a fill, no kernel."""
    return _COPY.match(api) is not None


def is_sync(api: str) -> bool:
    """Whether an API call waits for the device."""
    return _SYNC.match(api) is not None


def is_stream_wait(api: str) -> bool:
    """Whether an API call makes a stream wait for an event of another."""
    return _STREAM_WAIT.match(api) is not None


def is_blocking_copy(api: str) -> bool:
    """Whether an API call copies and returns only when the copy is done."""
    return _BLOCKING_COPY.match(api) is not None


def allocates(api: str) -> bool:
    """Whether an API call allocates or frees memory that is not from a stream-ordered pool."""
    return _ALLOCATION.match(api) is not None


def initialises(name: str, category: Category) -> bool:
    """Whether an event is of what a process does once: loading code, creating contexts, instantiating graphs."""
    known = {"api": _INITIALISATION, "overhead": _LOADING}.get(category)
    return known is not None and known.match(name) is not None


def _enclosing(inner: Sequence[Event], around: Sequence[Event]) -> list[tuple[Event, ...]]:
    """For each of `inner` the events of its thread that contain it, innermost first. Both are given by start."""
    stacks: dict[object, list[Event]] = defaultdict(list)
    found = []
    position = 0
    for event in inner:
        while position < len(around) and around[position].start_ns <= event.start_ns:
            outer = around[position]
            stacks[outer.tid] = [*_open(stacks[outer.tid], outer.start_ns), outer]
            position += 1
        stack = _open(stacks[event.tid], event.start_ns)
        found.append(tuple(owner for owner in reversed(stack) if owner != event and owner.end_ns >= event.end_ns))
    return found


def _open(stack: list[Event], instant_ns: int) -> list[Event]:
    return [event for event in stack if event.end_ns > instant_ns]
