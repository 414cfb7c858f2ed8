"""Makes the analysis of one trace: what a call runs on the device, what it launches, and what that costs the host."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final, TypeVar

from mlpfusion.records import Analysis, Kernel, Launches
from mlpfusion.spread import fifths
from mlpfusion.trace.calls import device_calls, host_calls, is_sync
from mlpfusion.trace.names import decode
from mlpfusion.trace.preops import pre_ops
from mlpfusion.trace.roles import roles

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from mlpfusion.device import DeviceKind
    from mlpfusion.trace.calls import Call, Calls
    from mlpfusion.trace.kineto import Trace

CALL: Final = "mlpfusion.call"
# Events of a compilation; inside a call they mean that it was compiled while it was measured.
_COMPILING: Final = frozenset({"entire_frame_compile", "_compile.compile_inner", "compile_attempt_0"})

_T = TypeVar("_T", bound="Hashable")


def analyse(trace: Trace, *, call: str = CALL, device: DeviceKind) -> Analysis:
    """What the trace says of one call: its kernels with medians over the calls, its launches, its host time.

    `kernel_us` is per call the union over all streams of the intervals of its kernels, copies and fills; on the CPU, of
    its leaf operators. Calls that did not run the kernels that most did are left out, which is a fault, as are lost
    events and compilation inside a call.

    Raises:
        MeasurementError: no annotation is named `call`, or a GPU trace has no GPU event.
    """
    found = device_calls(trace, call) if device == "cuda" else host_calls(trace, call)
    used, disagreement = _agreeing(found.calls)
    faults = [*_lost(trace, found), *_compiled(trace, found.calls), *disagreement]
    notes = _doubts(found)
    return Analysis(
        calls=len(used),
        kernels=_kernels(used),
        launches=_launches(used, notes, device),
        pre_ops=pre_ops(trace, used, split_launches=device == "cuda"),
        kernel_us=tuple(union_ns((w.event.start_ns, w.event.end_ns) for w in one.work) / 1000 for one in used),
        host_us=tuple(one.annotation.duration_ns / 1000 for one in used),
        faults=tuple(faults),
        notes=tuple(notes),
    )


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Nanoseconds covered by at least one of the intervals."""
    covered = 0
    reached: int | None = None
    for start, end in sorted(intervals):
        begin = start if reached is None else max(start, reached)
        if end > begin:
            covered += end - begin
        reached = end if reached is None else max(reached, end)
    return covered


def _agreeing(calls: Sequence[Call]) -> tuple[list[Call], list[str]]:
    """The calls that ran the most frequent sequence of kernels, and a note if others ran another."""
    sequences = [tuple(item.event.name for item in call.work) for call in calls]
    common = _most_common(sequences)
    used = [call for call, names in zip(calls, sequences, strict=True) if names == common]
    if len(used) == len(calls):
        return used, []
    counts = Counter(len(names) for names in sequences)
    if len(counts) > 1:
        shown = ", ".join(f"{count} in {times}" for count, times in sorted(counts.items()))
        reason = f"calls differ in their number of kernels ({shown} calls)"
    else:
        reason = "calls differ in the names of their kernels"
    return used, [f"{reason}; figures are of the {len(used)} of {len(calls)} calls that agree"]


def _lost(trace: Trace, found: Calls) -> list[str]:
    """What the trace lost."""
    faults = []
    if found.lost:
        faults.append(f"{found.lost} launches inside calls have no device event")
    if trace.dropped:
        faults.append(f"{trace.dropped} events could not be read")
    return faults


def _doubts(found: Calls) -> list[str]:
    """What the trace holds of other work, and where its two clocks disagree."""
    notes = []
    if found.orphans:
        notes.append(f"{found.orphans} device events have no launch in the trace and belong to no call")
    if found.early:
        notes.append(f"{found.early} device events start before their launch: the two clocks disagree")
    return notes


def _compiled(trace: Trace, calls: Sequence[Call]) -> list[str]:
    spans = [(call.annotation.start_ns, call.annotation.end_ns) for call in calls]
    compiling = [event.start_ns for event in trace.events if event.name in _COMPILING]
    hit = sum(any(start <= instant < end for instant in compiling) for start, end in spans) if compiling else 0
    return [f"{hit} of {len(calls)} calls were compiled while they were measured"] if hit else []


def _kernels(calls: Sequence[Call]) -> tuple[Kernel, ...]:
    """The kernels in device order, each with its median time over calls.

    Calls are compared in launch order, which overlap on the device cannot change.
    """
    work = calls[0].work
    decoded = [decode(item.event.name) for item in work]
    given = roles(work, decoded)
    kernels = []
    for position, (item, name, role) in enumerate(zip(work, decoded, given, strict=True)):
        across = [call.work[position].event for call in calls]
        begin = median(event.start_ns - call.annotation.start_ns for event, call in zip(across, calls, strict=True))
        times = [event.duration_ns / 1000 for event in across]
        p20, p80 = fifths(times)
        kernel = Kernel(
            name=item.event.name,
            role=role,
            decoded=name,
            time_us=median(times),
            p20_us=p20,
            p80_us=p80,
            op=item.owners[0].name if item.owners else None,
            launched_by=None if item.launch is item.event else item.launch.name,
        )
        kernels.append((begin, position, kernel))
    return tuple(kernel for _, _, kernel in sorted(kernels, key=lambda entry: entry[:2]))


def _launches(calls: Sequence[Call], notes: list[str], device: DeviceKind) -> Launches:
    """Launches per call; where calls differ in an API count the most frequent one, with a note."""
    kinds = Counter("kernel" if device == "cpu" else item.event.category for item in calls[0].work)
    by_api = [tuple(sorted(Counter(event.name for event in call.launches).items())) for call in calls]
    queries = [sum("Occupancy" in event.name for event in call.api) for call in calls]
    waits = [sum(is_sync(event) for event in call.api) for call in calls]
    for what, counts in (("launch API calls", by_api), ("occupancy queries", queries), ("synchronisations", waits)):
        if len(set(counts)) > 1:
            notes.append(f"calls differ in their {what}; the most frequent count is given")
    return Launches(
        kernels=kinds["kernel"],
        memcpys=kinds["memcpy"],
        memsets=kinds["memset"],
        runtime_launches=dict(_most_common(by_api)) if device == "cuda" else {},
        occupancy_queries=_most_common(queries),
        syncs=_most_common(waits),
    )


def _most_common(values: Sequence[_T]) -> _T:
    return Counter(values).most_common(1)[0][0]
