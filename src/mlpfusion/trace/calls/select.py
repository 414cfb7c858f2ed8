"""Selects the events that delimit the calls of a trace, with the reason."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.records.trace import CallAlternative, CallChoice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

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
# An annotation stands for the calls around it only if it holds this part of their work.
_MOST: Final = 0.8
# Names of numbers within words (`step12`, but `fp16` as well) are one only if so many are there, once each.
_FAMILY: Final = 3
_NUMBER: Final = re.compile(r"(?<![A-Za-z\d])\d+")
_DIGITS: Final = re.compile(r"\d+")
# Steps end and begin at one instant, which is rounded twice.
_ROUNDING_NS: Final = 1000
_STEPS: Final = "ProfilerStep"


class Issued(NamedTuple):
    """When work was launched, in time order, and how long it ran, in ns."""

    at: NDArray[np.int64]
    ran: NDArray[np.int64]


class _Named:
    """The events of one name, or of names that differ in numbers only, as calls; one inside another is the same."""

    def __init__(self) -> None:
        self.calls: list[Event] = []
        self.names: set[str] = set()
        self.rounded = 0  # calls that begin up to 1 µs before the one before them ends
        self.overlapping = 0  # events that overlap a call by more, as on another thread: left out

    def add(self, event: Event) -> None:
        self.names.add(event.name)
        before = self.calls[-1].end_ns if self.calls else event.start_ns
        if event.start_ns < before and event.end_ns <= before:
            return
        if event.start_ns < before - _ROUNDING_NS:
            self.overlapping += 1
            return
        self.rounded += event.start_ns < before
        self.calls.append(event)


def choose(
    annotations: Iterable[Event], issued: Issued, whole: Event, *, asked: str | None = None
) -> tuple[CallChoice, list[Event]]:
    """The choice and the calls, in time order; one inside its like is the same call.

    `annotations` are those of the trace, by start; `whole` stands for the whole trace.

    Raises:
        UsageError: `asked` names no annotation; the message lists those that there are.
    """
    events = list(annotations)
    by_name = _by_name(events)
    held = {name: _held(named.calls, issued) for name, named in by_name.items()}
    total = float(issued.ran.sum()) if len(issued.at) else float(whole.duration_ns)

    def chosen(by: str, name: str, reason: str) -> tuple[CallChoice, list[Event]]:
        named = by_name[name]
        choice = CallChoice(
            by=by,  # type: ignore[arg-type]
            name=name,
            count=len(named.calls),
            reason=reason,
            others=_others(by_name, held, total, name),
            rounded=named.rounded,
            overlapping=named.overlapping,
        )
        return choice, named.calls

    if asked is not None:
        name = _asked(asked, events, by_name)
        held.setdefault(name, _held(by_name[name].calls, issued))
        return chosen("asked", name, "it was requested")
    if CALL in by_name:
        return chosen("annotation", CALL, "mlpfusion recorded this trace")
    inner, reason = _innermost(by_name, held)
    if inner is not None:
        return chosen("annotation", inner, reason)
    if _STEPS in by_name:
        return chosen("profiler_step", _STEPS, reason)
    others = _others(by_name, held, total, None)
    reason = f"{reason}, nor is there a ProfilerStep"
    return CallChoice(by="whole_trace", name=None, count=1, reason=reason, others=others), [whole]


def template(name: str) -> str:
    """A name with its numbers, such as a batch size, as `*`; numbers that are part of a word stay."""
    return _NUMBER.sub("*", name)


def _by_name(events: Sequence[Event]) -> dict[str, _Named]:
    """The events by name. Steps, which differ in name, are one, as are other names that differ in numbers only."""
    counts = Counter(event.name for event in events)
    names: dict[str, set[str]] = defaultdict(set)
    for name in counts:
        names[_DIGITS.sub("*", name)].add(name)
    shown: dict[str, str] = {}
    for family, members in names.items():
        once = len(members) >= _FAMILY and all(counts[name] == 1 for name in members)
        parts: dict[str, set[str]] = defaultdict(set)
        for name in members:
            parts[_STEPS if _STEP.match(name) else family if once else template(name)].add(name)
        for part, alike in parts.items():
            label = next(iter(alike)) if len(alike) == 1 and part != _STEPS else part
            shown.update(dict.fromkeys(alike, label))
    found: dict[str, _Named] = defaultdict(_Named)
    for event in events:
        found[shown[event.name]].add(event)
    return dict(found)


def _asked(asked: str, events: Sequence[Event], by_name: dict[str, _Named]) -> str:
    """The name in `by_name` that was asked for; one of several that differ in numbers is added."""
    if asked.rstrip("#*") == _STEPS and _STEPS in by_name:
        return _STEPS
    if asked in by_name:
        return asked
    exact = [event for event in events if event.name == asked]
    if not exact:
        raise UsageError(f"the trace has no annotation named {asked!r}; {_known(by_name)}")
    by_name[asked] = _Named()
    for event in exact:
        by_name[asked].add(event)
    return asked


def _held(calls: Sequence[Event], issued: Issued) -> float:
    """The ns of work that was launched in the calls; without any launch in the trace the calls' own ns."""
    import numpy as np

    starts = np.array([call.start_ns for call in calls], dtype=np.int64)
    ends = np.array([call.end_ns for call in calls], dtype=np.int64)
    if not len(issued.at):
        return float((ends - starts).sum())
    until = np.concatenate(([0], np.cumsum(issued.ran)))
    return float((until[np.searchsorted(issued.at, ends)] - until[np.searchsorted(issued.at, starts)]).sum())


def _others(
    by_name: Mapping[str, _Named], held: Mapping[str, float], total: float, chosen: str | None
) -> tuple[CallAlternative, ...]:
    """What else could delimit a call, and is the user's or a step: what holds most of the work first."""
    names = [name for name in by_name if name != chosen and held[name] > 0 and not _pytorchs_own(name)]
    ranked = sorted(names, key=lambda name: (-held[name], name))[:_SHOWN_NAMES]
    return tuple(
        CallAlternative(name=name, count=len(by_name[name].calls), share=min(1.0, held[name] / (total or 1.0)))
        for name in ranked
    )


def _pytorchs_own(name: str) -> bool:
    return name == _OURS_BESIDE_CALLS or (name != _STEPS and _PYTORCHS_OWN.match(name) is not None)


def _known(by_name: Mapping[str, _Named]) -> str:
    """The names that can be requested, with their counts: the user's first, and the steps in any case."""
    numbers = {name: len(named.calls) for name, named in by_name.items()}
    ranked = sorted(numbers, key=lambda name: (_PYTORCHS_OWN.match(name) is not None, -numbers[name], name))
    if not ranked:
        return "it has no annotation at all"
    if _STEPS in numbers:
        ranked.insert(min(ranked.index(_STEPS), _SHOWN_NAMES - 1), _STEPS)
        ranked = list(dict.fromkeys(ranked))
    shown = ", ".join(f"{name!r} ({numbers[name]})" for name in ranked[:_SHOWN_NAMES])
    return f"there are {shown}" + (f" and {len(ranked) - _SHOWN_NAMES} more" if len(ranked) > _SHOWN_NAMES else "")


def _innermost(by_name: Mapping[str, _Named], held: Mapping[str, float]) -> tuple[str | None, str]:
    """The innermost repeated annotation of the user's that holds most of the work, or None; and why."""
    own = [name for name in by_name if not _pytorchs_own(name) and name != _STEPS]
    repeated = [name for name in own if len(by_name[name].calls) > 1]
    working = [name for name in repeated if held[name] > 0]
    if not working:
        return None, "no annotation of the user's is repeated" + (" and launches work" if repeated else "")
    most = max(held[name] for name in (*working, *(name for name in (_STEPS,) if name in by_name)))
    enough = [name for name in working if held[name] >= _MOST * most]
    if not enough:
        return None, f"no repeated annotation of the user's holds {_MOST:.0%} of the steps' work"
    around = _around({name: by_name[name].calls for name in enough})
    inner = [name for name in enough if name not in around] or enough
    best = max(inner, key=lambda name: (held[name], len(by_name[name].calls)))
    alone = len(working) == 1 and _STEPS not in by_name
    return best, "it is the innermost repeated annotation" + ("" if alone else " that holds most of the work")


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
