"""Finds the calls of a trace and links each piece of work to its launch, its operator and its call."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.errors import MeasurementError
from mlpfusion.trace import ops
from mlpfusion.trace.chrome import DEVICE_WORK
from mlpfusion.trace.kineto import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.trace.kineto import Trace

# API calls that hand work to the device. Host functions and queries are called launches as well.
_LAUNCH: Final = re.compile(
    r"(cuda|cu|hip)(?!\w*HostFunc)(\w*Launch\w*|Memcpy\w*|Memset\w*)$"  # hipExtModuleLaunchKernel, cuMemsetD8Async
)
_COPY: Final = re.compile(r"(cuda|cu|hip)(Memcpy|Memset)")
_SYNC: Final = re.compile(r"(cuda|cu|hip)\w*Synchronize$")
_CPP_KERNEL: Final = re.compile(r"(graph_\d+_)?cpp_(fused_)?\w+$")
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
    """One annotated call: its work in launch order, its launches in time order, and all API calls made inside it."""

    annotation: Event
    work: tuple[Work, ...]
    launches: tuple[Event, ...]
    api: tuple[Event, ...]


class Calls(msgspec.Struct, frozen=True):
    """The calls of a trace and what does not fit: work without a launch, launches without work, work before launch."""

    calls: tuple[Call, ...]
    orphans: int = 0
    lost: int = 0
    early: int = 0


def is_launch(event: Event) -> bool:
    """Whether an API call is one that hands a kernel, a graph, a copy or a fill to the device."""
    return event.category == "api" and _LAUNCH.match(event.name) is not None


def is_copy(event: Event) -> bool:
    """Whether a launch is a copy or a fill, no kernel."""
    return _COPY.match(event.name) is not None


def is_sync(event: Event) -> bool:
    """Whether an API call waits for the device."""
    return _SYNC.match(event.name) is not None


def annotated(trace: Trace, name: str) -> list[Event]:
    """The annotations called `name`, in time order; one inside another is the same call.

    Raises:
        MeasurementError: there is none.
    """
    found: list[Event] = []
    for event in trace.events:
        if event.category == "annotation" and event.name == name and not (found and event.start_ns < found[-1].end_ns):
            found.append(event)
    if not found:
        raise MeasurementError(f"the trace has no call: no annotation is named {name!r}")
    return found


def device_calls(trace: Trace, name: str) -> Calls:
    """The calls of a GPU trace. Work belongs to the call in which it was launched, on whatever thread and stream.

    Raises:
        MeasurementError: there is no call, or no device event at all.
    """
    annotations = annotated(trace, name)
    device = [event for event in trace.events if event.category in DEVICE_WORK]
    if not device:
        raise MeasurementError("no GPU events in the trace: the profiler recorded the host only")
    by_correlation: dict[int, list[Event]] = defaultdict(list)
    for event in device:
        if event.correlation:
            by_correlation[event.correlation].append(event)
    api = [event for event in trace.events if event.category == "api"]
    launched = {event.correlation for event in api}
    orphans = sum(not event.correlation or event.correlation not in launched for event in device)
    inside = _by_call(_outermost(api), annotations)
    operators = _by_call([event for event in trace.events if event.category == "op"], annotations)
    calls = []
    lost = early = 0
    for annotation, calls_api, call_ops in zip(annotations, inside, operators, strict=True):
        launches = tuple(e for e in calls_api if is_launch(e) or (e.correlation or 0) in by_correlation)
        owners = _enclosing(launches, call_ops)
        work = []
        for launch, around in zip(launches, owners, strict=True):
            done = by_correlation.get(launch.correlation or 0, ())
            lost += not done and not is_copy(launch)
            early += sum(event.start_ns < launch.start_ns for event in done)
            backward = launch.tid != annotation.tid or any(_BACKWARD.match(owner.name) for owner in around)
            work += [Work(event=event, launch=launch, owners=around, backward=backward) for event in done]
        calls.append(Call(annotation=annotation, work=tuple(work), launches=launches, api=tuple(calls_api)))
    return Calls(calls=tuple(calls), orphans=orphans, lost=lost, early=early)


def host_calls(trace: Trace, name: str) -> Calls:
    """The calls of a CPU run: leaf operators and Inductor's C++ kernels take the place of device work.

    Raises:
        MeasurementError: there is no call, or no operator inside one.
    """
    annotations = annotated(trace, name)
    found = []
    operators = _by_call([event for event in trace.events if event.category == "op"], annotations)
    for annotation, call_ops in zip(annotations, operators, strict=True):
        leaves = _leaves(call_ops)
        work = []
        for leaf, around in zip(leaves, _enclosing(leaves, call_ops), strict=True):
            backward = leaf.tid != annotation.tid or any(_BACKWARD.match(owner.name) for owner in around)
            work.append(Work(event=leaf, launch=leaf, owners=around, backward=backward))
        found.append(Call(annotation=annotation, work=tuple(work), launches=tuple(leaves), api=()))
    if not any(call.work for call in found):
        raise MeasurementError("no operators in the trace's calls: the profiler recorded no CPU activity")
    return Calls(calls=tuple(found))


def _by_call(events: Iterable[Event], annotations: Sequence[Event]) -> list[list[Event]]:
    """The events, given by start, that start inside each call, in the call's process."""
    found: list[list[Event]] = [[] for _ in annotations]
    index = 0
    for event in events:
        while index < len(annotations) and annotations[index].end_ns <= event.start_ns:
            index += 1
        if index == len(annotations):
            break
        if event.start_ns >= annotations[index].start_ns and event.pid == annotations[index].pid:
            found[index].append(event)
    return found


def _outermost(api: Iterable[Event]) -> list[Event]:
    """API calls by start, without those that another one made (a runtime call's driver call has its correlation)."""
    kept: list[Event] = []
    last: dict[object, Event] = {}
    for event in api:
        above = last.get(event.tid)
        if above and event.correlation and event.correlation == above.correlation and event.end_ns <= above.end_ns:
            continue
        last[event.tid] = event
        kept.append(event)
    return kept


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
        found.append(tuple(owner for owner in reversed(stack) if owner is not event and owner.end_ns >= event.end_ns))
    return found


def _open(stack: list[Event], instant_ns: int) -> list[Event]:
    return [event for event in stack if event.end_ns > instant_ns]


def _leaves(operators: Sequence[Event]) -> list[Event]:
    """The outermost operators that compute, given all of a call's operators by start.

    Views and factories compute nothing, the work of composites shows as operators inside them. What is inside a leaf
    belongs to it.
    """
    found: list[Event] = []
    covered: dict[object, int] = {}
    for event in operators:
        if event.start_ns < covered.get(event.tid, event.start_ns) or not _computes(event.name):
            continue
        covered[event.tid] = event.end_ns
        found.append(event)
    return found


def _computes(name: str) -> bool:
    if _CPP_KERNEL.match(name):
        return True
    space, separator, op = name.partition("::")
    if not separator or space in ("autograd", "torch") or not op.isidentifier():
        return False  # Dynamo's and the autograd engine's own events, autograd functions
    return not (op in ops.VIEWS or op in ops.FACTORIES or op in ops.QUERIES or op in ops.COMPOSITES)
