"""Selects the events that delimit the calls of a trace, with the reason."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from mlpfusion.errors import UsageError
from mlpfusion.records.trace import CallChoice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mlpfusion.trace.read.kineto import Event

CALL: Final = "mlpfusion.call"
_OURS_BESIDE_CALLS: Final = "mlpfusion.warmup"
_STEP: Final = re.compile(r"ProfilerStep\s?#\s?(\d+|\*)")
# What PyTorch itself annotates: its compiler, its optimizers, its loaders and its communication.
_PYTORCHS_OWN: Final = re.compile(
    r"ProfilerStep|## |Torch-Compiled Region|TorchDynamo|Pregraph bytecode|AOTDispatcher|.*_data: |Optimizer\."
    r"|enumerate\(DataLoader\)|record_param_comms|nccl:|gloo:|c10d::|DistributedDataParallel\.|FSDP::|FullyShardedData"
    r"|.*\(dynamo_timed\)|dynamo$|entire_frame_compile|_compile\.|compile_attempt_|CompiledF|triton_|cudagraph"
    r"|PyTorch Profiler|torch\.|aten::|autograd::|\[pytorch\||\[param\||## process_group"
)
_SHOWN_NAMES: Final = 6


def choose(
    annotations: Iterable[Event], launches: Sequence[int], whole: Event, *, asked: str | None = None
) -> tuple[CallChoice, list[Event]]:
    """The choice and the calls, in time order; one inside its like is the same call.

    `annotations` are those of the trace, by start; `launches` the times at which work was launched, sorted; `whole`
    stands for the whole trace.

    Raises:
        UsageError: `asked` names no annotation; the message lists those that there are.
    """
    by_name: dict[str, list[Event]] = defaultdict(list)
    steps: list[Event] = []
    for event in annotations:
        if _STEP.match(event.name):
            _append(steps, event)
        _append(by_name[event.name], event)
    if asked is not None:
        if asked.rstrip("#") == "ProfilerStep" and steps:
            return _choice("asked", "ProfilerStep", steps, "it was requested"), steps
        if asked not in by_name:
            raise UsageError(f"the trace has no annotation named {asked!r}; {_known(by_name, len(steps))}")
        return _choice("asked", asked, by_name[asked], "it was requested"), by_name[asked]
    if by_name.get(CALL):
        return _choice("annotation", CALL, by_name[CALL], "mlpfusion recorded this trace"), by_name[CALL]
    name, reason = _innermost(by_name, launches)
    if name is not None:
        return _choice("annotation", name, by_name[name], reason), by_name[name]
    if steps:
        return _choice("profiler_step", "ProfilerStep", steps, reason), steps
    return _choice("whole_trace", None, [whole], f"{reason}, nor a ProfilerStep"), [whole]


def _append(calls: list[Event], event: Event) -> None:
    if not calls or event.start_ns >= calls[-1].end_ns:
        calls.append(event)


def _choice(by: str, name: str | None, calls: Sequence[Event], reason: str) -> CallChoice:
    return CallChoice(by=by, name=name, count=len(calls), reason=reason)  # type: ignore[arg-type]


def _known(by_name: Mapping[str, Sequence[Event]], steps: int) -> str:
    """The names that can be requested, with their counts: the user's first. Steps, which differ in name, are one."""
    numbers = {name: len(events) for name, events in by_name.items() if not _STEP.match(name)}
    if steps:
        numbers["ProfilerStep"] = steps
    ranked = sorted(numbers, key=lambda name: (_PYTORCHS_OWN.match(name) is not None, -numbers[name], name))
    if not ranked:
        return "it has no annotation at all"
    if steps:  # always shown
        ranked.insert(min(ranked.index("ProfilerStep"), _SHOWN_NAMES - 1), "ProfilerStep")
        ranked = list(dict.fromkeys(ranked))
    shown = ", ".join(f"{name!r} ({numbers[name]})" for name in ranked[:_SHOWN_NAMES])
    return f"there are {shown}" + (f" and {len(ranked) - _SHOWN_NAMES} more" if len(ranked) > _SHOWN_NAMES else "")


def _innermost(by_name: Mapping[str, list[Event]], launches: Sequence[int]) -> tuple[str | None, str]:
    """The innermost repeated annotation of the user's that launches work, or None; and why."""
    own = [name for name in by_name if not _PYTORCHS_OWN.match(name) and name != _OURS_BESIDE_CALLS]
    repeated = [name for name in own if len(by_name[name]) > 1]
    working = [name for name in repeated if not launches or _launching(by_name[name], launches)]
    if not working:
        return None, "no annotation of the user's is repeated" + (" and launches work" if repeated else "")
    around = _around({name: by_name[name] for name in working})
    inner = [name for name in working if name not in around] or working
    best = max(inner, key=lambda name: (sum(event.duration_ns for event in by_name[name]), len(by_name[name])))
    others = [repr(name) for name in sorted(inner) if name != best][:_SHOWN_NAMES]
    beside = f"; beside it, with less time: {', '.join(others)}" if others else ""
    return best, f"it is the innermost repeated annotation{beside}"


def _launching(calls: Sequence[Event], launches: Sequence[int]) -> bool:
    return any(bisect_right(launches, call.end_ns - 1) > bisect_right(launches, call.start_ns - 1) for call in calls)


def _around(by_name: Mapping[str, Sequence[Event]]) -> set[str]:
    """The names whose events contain all events of some other name."""
    within: Counter[tuple[str, str]] = Counter()
    running: list[Event] = []
    ordered = sorted(
        (event for events in by_name.values() for event in events),
        key=lambda event: (event.start_ns, -event.duration_ns),
    )
    for event in ordered:
        running = [outer for outer in running if outer.end_ns > event.start_ns]
        names = {outer.name for outer in running if outer.end_ns >= event.end_ns and outer.pid == event.pid}
        within.update((outer, event.name) for outer in names - {event.name})
        running.append(event)
    return {outer for (outer, inner), count in within.items() if count == len(by_name[inner])}
