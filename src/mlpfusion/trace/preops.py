"""Splits the host time of a call up to its first launch, and on to its last, among the events that own each instant."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from statistics import median, median_low
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from mlpfusion.records import PreOpParts, PreOps
from mlpfusion.trace.calls import is_copy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.trace.calls import Call
    from mlpfusion.trace.kineto import Event, Trace

Part: TypeAlias = Literal[
    "dynamo_cache_lookup",
    "compiled_region_self",
    "pregraph",
    "aot_prologue",
    "compiled_graph_entry",
    "autograd_function",
    "triton_launcher",
    "dispatch",
    "runtime",
    "unattributed",
]

# Beginnings of names. torch emits these as operators or as annotations, depending on its version.
_SPELLINGS: Final[dict[str, Part]] = {
    "TorchDynamo Cache Lookup": "dynamo_cache_lookup",
    "Torch-Compiled Region": "compiled_region_self",
    "Pregraph bytecode": "pregraph",
    "AOTDispatcher Runtime Wrapper Prologue": "aot_prologue",
    "## Call CompiledFxGraph": "compiled_graph_entry",
}
_TRITON: Final = re.compile(r"triton_")
# The autograd engine's nodes, and functions written in Python, whose event is the class: `LigerGELUMulFunction`,
# `_ActMul`. An operator has a namespace; a bare name in lower case (`detach`) is an operator of older traces.
_AUTOGRAD: Final = re.compile(r"autograd::|torch::autograd::|_*[A-Z]\w*$|\w*Backward\d*$")


def pre_ops(trace: Trace, calls: Sequence[Call], *, split_launches: bool) -> PreOps:
    """The split of the call whose time to its first launch is the median (the lower of two), in µs.

    Every instant belongs to the innermost event of the thread that makes the next launch, or of the call's own thread
    while that one does nothing (before the autograd thread takes over). A part whose events occur nowhere in the
    trace is None. `split_launches` False leaves `between_launches` None, as on a CPU run, where the time between leaf
    operators is mostly theirs.
    """
    host_us = median(call.annotation.duration_ns for call in calls) / 1000 if calls else None
    waits = {index: _wait(call) for index, call in enumerate(calls) if call.launches}
    if not waits:
        return PreOps(n=len(calls), host_us=host_us)
    middle = median_low(waits.values())
    call = calls[next(index for index, wait in waits.items() if wait == middle)]
    present = _present(trace)
    spans = _spans(call)
    threads = _threads(trace, call)
    own = threads[call.annotation.tid]
    first = _split(threads, spans[:1], own)
    kernel = next((launch for launch in call.launches if not is_copy(launch)), None)
    parts = _parts(first, present)
    between = _parts(_split(threads, spans[1:], own), present) if split_launches else None
    return PreOps(
        n=len(waits),
        time_to_first_launch=middle / 1000,
        first_launch=call.launches[0].name,
        time_to_first_kernel=(kernel.start_ns - call.annotation.start_ns) / 1000 if kernel else None,
        between_launches=PreOpParts(**between) if between is not None else None,
        host_us=host_us,
        **parts,
    )


def _wait(call: Call) -> int:
    return call.launches[0].start_ns - call.annotation.start_ns


def _spans(call: Call) -> list[tuple[object, int, int]]:
    """(thread, start, end) in ns: from the call's start to its first launch, then from each launch to the next."""
    spans: list[tuple[object, int, int]] = []
    start = call.annotation.start_ns
    for launch in call.launches:
        spans.append((launch.tid, start, launch.start_ns))
        start = launch.start_ns
    return spans


def _threads(trace: Trace, call: Call) -> dict[object, list[Event]]:
    """The host events inside a call by thread, by start. Python frames are left out: they would own every instant."""
    found: dict[object, list[Event]] = defaultdict(list)
    for event in trace.events:
        if event.start_ns >= call.annotation.end_ns:
            break
        inside = event.end_ns > call.annotation.start_ns and event.pid == call.annotation.pid
        if inside and event.category in ("op", "annotation", "api", "overhead"):
            found[event.tid].append(event)
    return found


def _split(
    threads: dict[object, list[Event]], spans: Iterable[tuple[object, int, int]], own: Sequence[Event]
) -> Counter[Part]:
    """Nanoseconds of each part over the spans; they sum to the spans' length."""
    total: Counter[Part] = Counter()
    for thread, start, end in spans:
        total.update(owned(threads.get(thread, []), start, end, own))
    return total


def owned(events: Sequence[Event], start_ns: int, end_ns: int, otherwise: Sequence[Event] = ()) -> Counter[Part]:
    """Nanoseconds of [start, end) by part, given the events of a thread by start.

    Each instant goes to the event that began last of those still running, which for nested events is the innermost;
    without one to an event of `otherwise` in the same way, and else to "unattributed".
    """
    total: Counter[Part] = Counter()
    stack: list[Event] = []
    now = start_ns
    for event in events:
        if event.start_ns >= end_ns:
            break
        now = _advance(stack, now, event.start_ns, total, otherwise)
        stack.append(event)
    _advance(stack, now, end_ns, total, otherwise)
    return total


def _advance(stack: list[Event], now: int, until: int, total: Counter[Part], otherwise: Sequence[Event]) -> int:
    """Give the instants from `now` to `until` to the events on the stack, dropping those that end; the new `now`."""
    while now < until:
        while stack and stack[-1].end_ns <= now:
            stack.pop()
        stop = min(stack[-1].end_ns, until) if stack else until
        if stack:
            total[part_of(stack[-1])] += stop - now
        elif otherwise:
            total.update(owned(otherwise, now, stop))
        else:
            total["unattributed"] += stop - now
        now = stop
    return now


def part_of(event: Event) -> Part:
    """The part that an event's own instants are."""
    if event.category == "api":
        return "runtime"
    for spelling, part in _SPELLINGS.items():
        if event.name.startswith(spelling):
            return part
    if event.category != "op":
        return "unattributed"
    if _TRITON.match(event.name):
        return "triton_launcher"
    return "autograd_function" if _AUTOGRAD.match(event.name) else "dispatch"


def _present(trace: Trace) -> set[Part]:
    """The parts of which the trace has an event anywhere. What no event claims is always known."""
    kinds = {(event.name, event.category): event for event in trace.events if event.category in ("op", "annotation")}
    found: set[Part] = {part_of(event) for event in kinds.values()}
    found.add("unattributed")
    if any(event.category == "api" for event in trace.events):
        found.add("runtime")
    return found


def _parts(split: Counter[Part], present: set[Part]) -> dict[str, float | None]:
    return {part: split[part] / 1000 if part in present else None for part in PreOpParts.__struct_fields__}
