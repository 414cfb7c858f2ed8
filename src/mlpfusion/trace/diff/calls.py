"""Compares two calls, each from a trace or a row of a result file: kernels, operators, launches, times."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from mlpfusion.records.profile import PreOpParts
from mlpfusion.records.trace import CountChange, Difference, HostEvent, PartChange, Reading, TimeChange
from mlpfusion.stats import median_interval
from mlpfusion.trace.analysis import facts
from mlpfusion.trace.diff import pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlpfusion.device import DeviceKind
    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Kernel, Launches, PreOps, Row
    from mlpfusion.records.trace import KernelPair, Spread
    from mlpfusion.records.traffic import Role

Side: TypeAlias = "Reading | Row"

_HASH: Final = re.compile(r"(## Call CompiledFxGraph) \w+ ##|(Torch-Compiled Region): [\w/]+")
# What runs in the place of kernels on a CPU: operators by their name, and Inductor's C++.
_CPU_WORK: Final = re.compile(r"\w+::\w+$|cpp_\w+$")
_DEVICES: Final = {"cpu": "CPU", "cuda": "GPU"}
_APART: Final = "kernel times, launches and the time before the first one are not compared"
# Longer chains are cut here: they name the operators of a root, and a whole model is too long.
_CHAIN: Final = 24


class _Side(NamedTuple):
    """What a comparison needs of one side."""

    label: str
    kernels: Sequence[Kernel]
    launches: Launches | None
    pre_ops: PreOps | None
    timeline: Sequence[HostEvent]
    clocks: Mapping[str, Sequence[float]]
    device: DeviceKind
    spreads: Mapping[int, Spread]  # by the kernel's id
    incomplete: str | None = None
    gpu: str | None = None  # or the CPU


def diff(a: Side, b: Side, *, labels: tuple[str, str] | None = None) -> Difference:
    """How `b` differs from `a`. Sides may be mixed; a row of a result file has no operators.

    A reading without averages gives no times; of a CPU and a GPU, only what both measure alike is compared.
    `labels` name the sides in the summary; else they are the source or the backend.
    """
    first, second = _side(a, labels[0] if labels else None), _side(b, labels[1] if labels else None)
    apart = first.device != second.device
    kernels = _timed(pairs.pair(first.kernels, second.kernels), first, second)
    caveats = [
        f"{name}: its times are not compared, since it is incomplete: {side.incomplete}"
        for name, side in (("a", first), ("b", second))
        if side.incomplete
    ]
    if apart:
        caveats.append(f"a ran on {_DEVICES[first.device]}, b on {_DEVICES[second.device]}: {_APART}")
    reasons = [*caveats]
    ops: tuple[CountChange, ...] = ()
    chains: tuple[CountChange, ...] = ()
    if first.timeline and second.timeline:
        ops = _counts(Counter(_operators(first.timeline)), Counter(_operators(second.timeline)))
        chains = _counts(Counter(_chains(first.timeline)), Counter(_chains(second.timeline)))
    else:
        lacking = [side.label for side in (first, second) if not side.timeline]
        have = "has" if len(lacking) == 1 else "have"
        reasons.append(f"operators are not compared: {' and '.join(lacking)} {have} no timeline of host events")
    reasons += [
        f"{side.label}: {given.reason}"
        for given, side in ((a, first), (b, second))
        if not isinstance(given, Reading) and given.reason
    ]
    shared = [clock for clock in first.clocks if clock in second.clocks and not (apart and clock == "kernel_us")]
    compared = [_time(clock, first.clocks[clock], second.clocks[clock]) for clock in shared]
    times = tuple(change for change in compared if change is not None)
    return Difference(
        a=first.label,
        b=second.label,
        a_device=first.gpu,
        b_device=second.gpu,
        kernels=kernels,
        ops=ops,
        chains=chains,
        launches=() if apart else _launches(first.launches, second.launches),
        times=times,
        pre_ops=() if apart else _parts(first.pre_ops, second.pre_ops),
        summary=(*caveats, *_summary(kernels, chains, times)),
        reasons=tuple(reasons),
    )


def _side(side: Side, label: str | None) -> _Side:
    if isinstance(side, Reading):
        return _read_side(side, label or side.source)
    names = ("wall_us", "event_us", "kernel_us", "graph_us")
    clocks = {name: _samples(getattr(side.clocks, name)) for name in names} if side.clocks is not None else {}
    return _Side(
        label or side.backend,
        side.kernels,
        side.launches,
        side.pre_ops,
        (),
        {name: samples for name, samples in clocks.items() if samples},
        "cpu" if side.kernels and all(_CPU_WORK.match(kernel.name) for kernel in side.kernels) else "cuda",
        {},
    )


def _read_side(side: Reading, label: str) -> _Side:
    """A reading; without its times if no average of them may be shown."""
    analysis = side.analysis
    kernels = analysis.kernels
    clocks = {"host_us": analysis.host_us, "kernel_us": analysis.kernel_us}
    spreads: dict[int, Spread] = {}
    if side.incomplete:
        untimed = {"time_us": None, "p20_us": None, "p80_us": None}
        kernels, clocks = tuple(msgspec.structs.replace(one, **untimed) for one in kernels), {}
    elif len(side.kernel_spread) == len(kernels):
        spreads = {id(kernel): spread for kernel, spread in zip(kernels, side.kernel_spread, strict=True) if spread}
    return _Side(
        label,
        kernels,
        analysis.launches,
        None if side.incomplete else analysis.pre_ops,
        side.timeline,
        {name: samples for name, samples in clocks.items() if samples},
        side.device,
        spreads,
        side.incomplete,
        side.gpu or ("CPU" if side.device == "cpu" else None),
    )


def _timed(found: Sequence[KernelPair], a: _Side, b: _Side) -> tuple[KernelPair, ...]:
    """The pairs with the spreads of their times, and without a difference between a CPU's time and a GPU's."""
    return tuple(
        msgspec.structs.replace(
            pair,
            a_spread=a.spreads.get(id(pair.a)),
            b_spread=b.spreads.get(id(pair.b)),
            difference_us=pair.difference_us if a.device == b.device else None,
        )
        for pair in found
    )


def _samples(clock: Clock | None) -> tuple[float, ...]:
    return clock.samples if clock else ()


# ---- operators -------------------------------------------------------------------------------------------------------


def _operators(timeline: Sequence[HostEvent]) -> list[str]:
    return [_named(event) for event in timeline if event.category in ("op", "annotation")]


def _named(event: HostEvent) -> str:
    """The event's name without hashes and compile ids, which differ between runs."""
    return _HASH.sub(lambda match: match[1] or match[2], event.name)


def _chains(timeline: Sequence[HostEvent]) -> list[str]:
    """Each outermost operator with those inside it, in the order in which they began."""
    found: list[list[str]] = []
    open_at: dict[int, tuple[float, list[str]]] = {}
    for event in timeline:
        if event.category != "op" and not _HASH.match(event.name):
            continue
        end, chain = open_at.get(event.thread, (float("-inf"), []))
        if event.start_us >= end:
            chain = []
            found.append(chain)
            open_at[event.thread] = (event.start_us + event.duration_us, chain)
        chain.append(_named(event))
    return [
        " → ".join(chain[:_CHAIN]) + (f" → and {len(chain) - _CHAIN} more" if len(chain) > _CHAIN else "")
        for chain in found
    ]


def _counts(a: Counter[str], b: Counter[str]) -> tuple[CountChange, ...]:
    """What changed in number, in the order of first appearance, a's before b's own."""
    return tuple(CountChange(name=name, a=a[name], b=b[name]) for name in dict.fromkeys([*a, *b]) if a[name] != b[name])


# ---- launches, times -------------------------------------------------------------------------------------------------


def _launches(a: Launches | None, b: Launches | None) -> tuple[CountChange, ...]:
    if a is None or b is None:
        return ()
    return _counts(_launch_counts(a), _launch_counts(b))


def _launch_counts(launches: Launches) -> Counter[str]:
    return Counter(
        {
            "kernels": launches.kernels,
            "memcpys": launches.memcpys,
            "memsets": launches.memsets,
            **launches.runtime_launches,
            "occupancy queries": launches.occupancy_queries,
            "synchronisations": launches.syncs,
        }
    )


def _parts(a: PreOps | None, b: PreOps | None) -> tuple[PartChange, ...]:
    if a is None or b is None:
        return ()
    names = ("time_to_first_launch", *PreOpParts.__struct_fields__)
    changes = [PartChange(part=name, a_us=getattr(a, name), b_us=getattr(b, name)) for name in names]
    return tuple(change for change in changes if change.a_us or change.b_us)


def _time(clock: str, a: Sequence[float], b: Sequence[float]) -> TimeChange | None:
    first, second = facts.spread(a), facts.spread(b)
    if first is None or second is None:
        return None
    bounds = _interval(a), _interval(b)
    low = high = None
    if bounds[0] and bounds[1]:
        low, high = bounds[1][0] - bounds[0][1], bounds[1][1] - bounds[0][0]
    clear = low is not None and high is not None and (low > 0 or high < 0)
    return TimeChange(
        clock=clock,
        a=first,
        b=second,
        difference_us=second.median - first.median,
        low_us=low,
        high_us=high,
        clear=clear,
    )


def _interval(samples: Sequence[float]) -> tuple[float, float] | None:
    ranks = median_interval(len(samples))
    ordered = sorted(samples)
    return (ordered[ranks[0]], ordered[ranks[1]]) if ranks else None


# ---- in sentences ----------------------------------------------------------------------------------------------------

_ROLES: Final = {
    "gate_gemm": "gate GEMM",
    "up_gemm": "up GEMM",
    "gate_up_gemm": "gate and up GEMM",
    "down_gemm": "down GEMM",
    "act_mul": "act·mul",
}
_CLOCKS: Final = {"host_us": "host time under the profiler", "kernel_us": "kernel time"}
_SHOWN: Final = 80  # characters of a kernel's name in a sentence
_SORTS: Final = ("GEMM", "other kernel", "memset", "memcpy")
_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _summary(kernels: Sequence[KernelPair], chains: Sequence[CountChange], times: Sequence[TimeChange]) -> list[str]:
    said = []
    same = Counter(_sort(pair) for pair in kernels if pair.change == "same")
    if same:
        told = [_many(same[sort], sort) for sort in _SORTS if same[sort]]
        said.append(f"the same, name for name: {', '.join(told)}")
    relaunched = Counter(_told(pair) for pair in kernels if pair.change == "same" and pair.changes)
    if relaunched:
        said.append(f"of one name, launched otherwise: {_times(relaunched)}")
    for change, word in (("changed", "changed"), ("gone", "gone"), ("new", "new")):
        named = Counter(_told(pair) for pair in kernels if pair.change == change)
        if named:
            said.append(f"{word}: {_times(named)}")
    gone = [chain for chain in chains if chain.a > chain.b]
    added = [chain for chain in chains if chain.b > chain.a]
    if gone:
        said.append(f"operators gone: {'; '.join(f'{chain.a - chain.b}x {chain.name}' for chain in gone)}")
    if added:
        said.append(f"operators added: {'; '.join(f'{chain.b - chain.a}x {chain.name}' for chain in added)}")
    return said + [_time_told(change) for change in times]


def _times(named: Counter[str]) -> str:
    return ", ".join(f"{number}x {text}" if number > 1 else text for text, number in named.items())


def _sort(pair: KernelPair) -> str:
    kind = pair.a.decoded.kind if pair.a else "other"
    return {"gemm": "GEMM", "memset": "memset", "memcpy": "memcpy"}.get(kind, "other kernel")


def _many(count: int, word: str) -> str:
    number = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return f"{number} {word}{'' if count == 1 else 's'}"


def _told(pair: KernelPair) -> str:
    """A kernel in few words: its role or what it computes, and of a new one its name, of a changed one in what."""
    kernel = pair.b or pair.a
    if kernel is None or pair.role == "memset":
        return pair.role
    what = _work(pair.role, kernel)
    if pair.change == "new" and kernel.decoded.kind != "memcpy":
        maker = f" ({kernel.decoded.library})" if kernel.decoded.library else ""
        fused = len(pairs.work_of(kernel)) > 1 or "act_mul" in kernel.decoded.fused_ops
        return f"{'one fused kernel' if fused else what} {kernel.name[:_SHOWN]}{maker}"
    if pair.changes:
        shown = ", ".join(f"{change.field} {change.a or '-'} → {change.b or '-'}" for change in pair.changes[:4])
        return f"{what} ({shown})"
    return what


def _work(role: Role, kernel: Kernel) -> str:
    if role in _ROLES:
        helper = role.endswith("gemm") and kernel.decoded.kind != "gemm"
        return f"{_ROLES[role]}'s {' and '.join(kernel.decoded.fused_ops) or 'helper'}" if helper else _ROLES[role]
    if kernel.decoded.kind == "memcpy" or not kernel.decoded.fused_ops:
        return "GEMM" if kernel.decoded.kind == "gemm" else kernel.name[:_SHOWN]
    work = " and ".join(pairs.work_of(kernel) or kernel.decoded.fused_ops)
    return work if role in ("other", "memcpy", work) else f"{role} ({work})"


def _time_told(change: TimeChange) -> str:
    clock = _CLOCKS.get(change.clock, change.clock)
    text = f"{clock}: {change.a.median:.1f} → {change.b.median:.1f} µs ({change.difference_us:+.1f}"
    if change.low_us is None or change.high_us is None:
        return f"{text}; too few calls for bounds)"
    text += f", between {change.low_us:+.1f} and {change.high_us:+.1f})"
    return text if change.clear else f"{text}: no clear difference"
