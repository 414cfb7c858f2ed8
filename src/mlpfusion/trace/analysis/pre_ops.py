"""Splits a call's host time before its first launch and between launches by the owner of each instant."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache
from statistics import median, median_low
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from mlpfusion.records.profile import PreOpParts, PreOps
from mlpfusion.trace.calls.call import is_copy
from mlpfusion.trace.read.chrome import DEVICE_WORK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.trace.calls.call import Call, Calls
    from mlpfusion.trace.read.chrome import Category
    from mlpfusion.trace.read.kineto import Event, Trace

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

Stretch: TypeAlias = tuple[object, int, int]  # thread, start and end in ns
Piece: TypeAlias = tuple[int, int, Part]  # start and end in ns, and what owned the time between

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


def pre_ops(calls: Calls, used: Sequence[int], *, split_launches: bool) -> PreOps:
    """The split of the used call whose time to its first launch is the median (the lower of two), in µs.

    Every instant belongs to the innermost event of the thread that makes the next launch, or of the call's own thread
    while that one does nothing (before the autograd thread takes over). A part whose events occur nowhere in the
    trace is None. `split_launches` False leaves `between_launches` None, as on a CPU run, where the time between leaf
    operators is mostly theirs.
    """
    host_us = median(calls.windows[index].duration_ns for index in used) / 1000 if used else None
    index = median_call(calls, used)
    if index is None or without(calls.trace) is not None:
        return PreOps(n=len(used), host_us=host_us)
    call = calls.call(index)
    present = _present(calls.trace)
    spans = _spans(call)
    threads = _threads(call)
    own = threads[call.annotation.tid]
    first = _split(threads, spans[:1], own).total
    kernel = next((launch for launch in call.launches if not is_copy(launch.name)), None)
    parts = _parts(first, present)
    between = _parts(_split(threads, spans[1:], own).total, present) if split_launches else None
    return PreOps(
        n=len(_waits(calls, used)),
        time_to_first_launch=(call.launches[0].start_ns - call.annotation.start_ns) / 1000,
        first_launch=call.launches[0].name,
        time_to_first_kernel=(kernel.start_ns - call.annotation.start_ns) / 1000 if kernel else None,
        between_launches=PreOpParts(**between) if between is not None else None,
        host_us=host_us,
        **parts,
    )


def unowned(call: Call) -> tuple[list[Stretch], list[Stretch]]:
    """When a call's host was in no event that has a part, before its first launch and between launches, by thread."""
    spans, threads, mine = _spans(call), _threads(call), call.annotation.tid
    first, between = (_split(threads, some, threads[mine]) for some in (spans[:1], spans[1:]))
    return tuple(  # type: ignore[return-value]
        [(mine if thread is None else thread, *times) for thread, times in found.unowned] for found in (first, between)
    )


def pieces(call: Call, *, split_launches: bool) -> tuple[Piece, ...]:
    """What owned each instant of a call's host time in its order, to the first launch or, with `split_launches`, on.

    The lengths by part are those of `pre_ops`.
    """
    spans, threads = _spans(call), _threads(call)
    found = _split(threads, spans if split_launches else spans[:1], threads[call.annotation.tid])
    return tuple(sorted(found.pieces))


def without(trace: Trace) -> str | None:
    """Why a trace can have no pre-ops, or None."""
    categories = {kind.category for kind in trace.kinds}
    if "op" not in categories:
        return "the trace has no operators of the host: the profiler did not record CPU activity"
    if not categories & {"api"} and categories & DEVICE_WORK:
        return "the trace has no API calls of the host, so no launch is known"
    return None


def median_call(calls: Calls, used: Sequence[int]) -> int | None:
    """Of the used calls the one whose time to its first launch is the median (the lower of two), if any launches."""
    waits = _waits(calls, used)
    if not waits:
        return None
    middle = median_low(waits.values())
    return next(index for index, wait in waits.items() if wait == middle)


def _waits(calls: Calls, used: Sequence[int]) -> dict[int, int]:
    """By call the nanoseconds to its first launch, for those that have one."""
    bounds = calls.launches.bounds.tolist()
    launching = [index for index in used if bounds[index] < bounds[index + 1]]
    firsts = calls.trace.start[calls.launches.rows[[bounds[index] for index in launching]]].tolist()
    return {index: first - calls.windows[index].start_ns for index, first in zip(launching, firsts, strict=True)}


def _spans(call: Call) -> list[tuple[object, int, int]]:
    """(thread, start, end) in ns: from the call's start to its first launch, then from each launch to the next."""
    spans: list[tuple[object, int, int]] = []
    start = call.annotation.start_ns
    for launch in call.launches:
        spans.append((launch.tid, start, launch.start_ns))
        start = launch.start_ns
    return spans


def _threads(call: Call) -> dict[object, list[Event]]:
    """The host events of a call by thread, by start. Python's frames are none: they would own every instant."""
    found: dict[object, list[Event]] = defaultdict(list)
    for event in call.host:
        found[event.tid].append(event)
    return found


class _Split(NamedTuple):
    """Nanoseconds by part, what owned each instant, and when nothing that has a part ran: on which thread.

    None is the call's own thread.
    """

    total: Counter[Part]
    pieces: list[Piece]
    unowned: list[tuple[object, tuple[int, int]]]


def _split(
    threads: dict[object, list[Event]], spans: Iterable[tuple[object, int, int]], own: Sequence[Event]
) -> _Split:
    """Nanoseconds of each part over the spans, given in time order; they sum to the spans' length."""
    lines: dict[object, _Line] = {}
    otherwise = _Line(own)
    total: Counter[Part] = Counter()
    for thread, start, end in spans:
        line = lines.get(thread)
        if line is None:
            line = lines[thread] = _Line(threads.get(thread, []))
        line.share_out(start, end, total, otherwise)
    every = (*lines.items(), (None, otherwise))
    return _Split(
        total,
        [piece for _, line in every for piece in line.pieces],
        [(thread, piece[:2]) for thread, line in every for piece in line.pieces if piece[2] == "unattributed"],
    )


def owned(events: Sequence[Event], start_ns: int, end_ns: int, otherwise: Sequence[Event] = ()) -> Counter[Part]:
    """Nanoseconds of [start, end) by part, given the events of a thread by start.

    Each instant goes to the event that began last of those still running, which for nested events is the innermost;
    without one to an event of `otherwise` in the same way, and else to "unattributed".
    """
    total: Counter[Part] = Counter()
    _Line(events).share_out(start_ns, end_ns, total, _Line(otherwise))
    return total


class _Line:
    """The events of one thread, gone through once from the first to the last.

    `pieces` are the instants that were its own; those of others that were asked otherwise are theirs.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.pieces: list[Piece] = []
        self._events = events
        self._next = 0
        self._running: list[Event] = []

    def share_out(self, start_ns: int, end_ns: int, total: Counter[Part], otherwise: _Line | None) -> None:
        """Add the instants of [start, end), which begins no earlier than the stretch before it ended."""
        now = start_ns
        while now < end_ns:
            while self._next < len(self._events) and self._events[self._next].start_ns <= now:
                self._running.append(self._events[self._next])
                self._next += 1
            while self._running and self._running[-1].end_ns <= now:
                self._running.pop()
            begins = self._events[self._next].start_ns if self._next < len(self._events) else end_ns
            stop = min(begins, end_ns, self._running[-1].end_ns if self._running else end_ns)
            if not self._running and otherwise is not None:
                otherwise.share_out(now, stop, total, None)
            else:
                part: Part = part_of(self._running[-1]) if self._running else "unattributed"
                total[part] += stop - now
                self.pieces.append((now, stop, part))
            now = stop


def part_of(event: Event) -> Part:
    """The part that an event's own instants are."""
    return _part(event.name, event.category)


@lru_cache(maxsize=4096)
def _part(name: str, category: Category) -> Part:
    if category == "api":
        return "runtime"
    for spelling, part in _SPELLINGS.items():
        if name.startswith(spelling):
            return part
    if category != "op":
        return "unattributed"
    if _TRITON.match(name):
        return "triton_launcher"
    return "autograd_function" if _AUTOGRAD.match(name) else "dispatch"


def _present(trace: Trace) -> set[Part]:
    """The parts of which the trace has an event anywhere. What no event claims is always known."""
    found: set[Part] = {_part(*kind) for kind in trace.kinds if kind.category in ("op", "annotation", "api")}
    found.add("unattributed")
    return found


def _parts(split: Counter[Part], present: set[Part]) -> dict[str, float | None]:
    return {part: split[part] / 1000 if part in present else None for part in PreOpParts.__struct_fields__}
