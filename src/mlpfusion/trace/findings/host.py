"""Derives findings from a reading: an observation with its numbers, what it means, what to do."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from mlpfusion.records.profile import PreOpParts
from mlpfusion.records.trace import Finding
from mlpfusion.trace.calls.call import is_sync
from mlpfusion.trace.findings import device as device_findings
from mlpfusion.trace.findings.device import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mlpfusion.records.trace import Reading, Tally

Asked: TypeAlias = Literal["compile", "cudagraphs"]

# A first call this much wider than the rest is no noise: steady calls of one trace differ by a few percent.
COLD: Final = 1.25
# The profiler makes host time up to 1.9 times as long as it is (seen on an H200), so the host limits a call for
# certain only when its traced time to issue the work is twice the device's.
INFLATION: Final = 2.0
# A kernel's times within one trace agree within a few percent at fixed clocks; a fifth is another state of the card.
# Below 2 µs differences are the resolution of the time stamps and the card's scheduling.
VARIES: Final = 0.2
VARIES_US: Final = 2.0
# A wait shorter than this, or than a tenth of the call, changes nothing that one would do.
WAIT_US: Final = 20.0
WAIT_SHARE: Final = 0.1
# A benchmark of configurations launches one kernel tens of times; a model's own loop rarely one more in one call.
AUTOTUNE_REPEATS: Final = 10

_AUTOTUNES: Final = re.compile(r"autotun|benchmark_all_configs|bench_choices|coordinate_descent", re.IGNORECASE)
_BUFFERS: Final = re.compile(r"Activity Buffer Request|Buffer Flush|Command Buffer Full", re.IGNORECASE)
_LAZY: Final = re.compile(r"Lazy Function Loading|Instrumentation|Resource", re.IGNORECASE)
_LOOKUP: Final = "TorchDynamo Cache Lookup"


def findings(reading: Reading, *, asked: Asked | None = None) -> tuple[Finding, ...]:
    """All findings: doubts about the trace first, then by kind.

    `asked` is what the traced code was meant to run under, if the caller knows it; else it is inferred from the trace.
    """
    rules: Sequence[Callable[[Reading, Asked | None], Iterable[Finding]]] = (
        _missing, _orphans, _recompiled, _versions, _autotuned, _fallback, _no_graphs, _cold, _overhead, _varying,
        _bound, _final_wait, _waits,
    )  # fmt: skip
    found = [finding for rule in rules for finding in rule(reading, asked)]
    return (*found, *device_findings.of_work(reading))


# ---- the trace itself ------------------------------------------------------------------------------------------------


def _missing(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """Events that the profiler or the file lost."""
    if reading.incomplete:
        yield Finding(
            id="missing_events",
            seen=reading.incomplete,
            means="counts and times per call are incomplete",
            do="record fewer events (shorter schedule, no stacks), and synchronise at the end",
        )


def _orphans(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    whole = reading.integrity
    seen = [
        f"{counted(whole.orphans, 'device event')} without a launch in the trace" if whole.orphans else "",
        f"{counted(whole.early, 'device event')} that start before their launch" if whole.early else "",
    ]
    if any(seen):
        yield Finding(
            id="orphan_events",
            seen="; ".join(text for text in seen if text),
            means="earlier work was still running when recording began, or host and device clocks disagree; no call "
            "counts it",
            do="synchronise before the first recorded step, and schedule a warm-up step",
        )


def _overhead(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """The profiler's own pauses inside calls."""
    kinds: tuple[tuple[str, re.Pattern[str], str, str], ...] = (
        ("profiler_buffer", _BUFFERS, "the profiler paused the program to allocate or flush its event buffers",
         "exclude those calls from host times; record fewer calls or events"),
        ("lazy_loading", _LAZY, "kernels were loaded to the device on first use inside a recorded call",
         "run every shape once before recording"),
    )  # fmt: skip
    for name, pattern, means, advice in kinds:
        tallies = [tally for tally in reading.overhead if pattern.search(tally.name)]
        if tallies:
            yield Finding(id=name, seen=f"inside calls: {_tallied(tallies)}", means=means, do=advice)


def _tallied(tallies: Sequence[Tally]) -> str:
    return ", ".join(f"{tally.count}x {tally.name}, {tally.total_us:.0f} µs" for tally in tallies)


# ---- compilation -----------------------------------------------------------------------------------------------------


def _recompiled(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """Compilation's own events inside calls. A region's id such as 0/1 is no sign of it."""
    compiling = [tally for tally in reading.compiling if not _AUTOTUNES.search(tally.name)]
    if compiling:
        longest = max(tally.longest_us for tally in compiling)
        yield Finding(
            id="recompile",
            seen=f"compilation inside recorded calls: {_tallied(compiling)}",
            means=f"a call compiled while it was recorded, for up to {longest / 1000:.1f} ms: not a steady time",
            do="call every shape, dtype and grad mode once before recording; TORCH_LOGS=recompiles shows what changed",
        )


def _versions(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """Two compiled versions of one frame, in different calls."""
    frames = defaultdict(list)
    for region in reading.regions:
        frame, _, version = region.id.partition("/")
        if version:
            frames[frame].append(region)
    for frame, regions in frames.items():
        # Several modules that share their code have versions of it side by side in every call: that is no change.
        apart = [one for one in regions if one.calls < reading.call.count]
        if len(apart) < 2 or sum(one.calls for one in apart) > reading.call.count:
            continue
        shown = ", ".join(f"{one.id} in {one.calls} (from {one.first + 1} to {one.last + 1})" for one in apart)
        ordered = sorted(apart, key=lambda one: one.first)
        in_turn = all(one.last < after.first for one, after in pairwise(ordered))
        yield Finding(
            id="graph_changed",
            seen=f"calls ran different compiled versions of frame {frame}: {shown}",
            means="the code was recompiled between calls, or later calls had another shape or mode"
            if in_turn
            else "calls alternate between versions, as with train() and eval() or changing shapes",
            do="record calls of one shape and mode; TORCH_LOGS=recompiles shows which guards failed",
        )


def _autotuned(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    seen = [_tallied([tally]) for tally in reading.compiling if _AUTOTUNES.search(tally.name)]
    seen += [
        f"call {odd.index + 1} ran {odd.most[:60]} {odd.times} times, the others {odd.usual_times}"
        for odd in reading.odd_calls
        if odd.times >= odd.usual_times + AUTOTUNE_REPEATS
    ]
    counts: dict[str, int] = defaultdict(int)
    for kernel in reading.analysis.kernels:
        if kernel.decoded.kind in ("memset", "memcpy") or kernel.decoded.library in ("cublas", "aten", "nccl"):
            continue
        counts[kernel.name] += 1
    if reading.call.by == "whole_trace" or reading.call.count == 1:
        seen += [
            f"{name[:60]} ran {n} times in the one call" for name, n in counts.items() if n >= 5 * AUTOTUNE_REPEATS
        ]
    if seen:
        yield Finding(
            id="autotune",
            seen="; ".join(seen),
            means="kernel configurations were benchmarked inside recorded calls",
            do="run every shape once before recording; Triton and Inductor cache the choice",
        )


def _fallback(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """Compile was requested, but eager ran."""
    parts = reading.analysis.pre_ops
    names = {event.name for event in reading.timeline}
    looked_up = bool(parts.dynamo_cache_lookup) or any(name.startswith(_LOOKUP) for name in names)
    compiled = (
        bool(reading.regions)
        or parts.compiled_region_self is not None
        or parts.compiled_graph_entry is not None
        or any(kernel.decoded.library in ("inductor", "inductor-cpp") for kernel in reading.analysis.kernels)
    )
    if (asked is not None or looked_up) and not compiled:
        operators = sum(event.category == "op" and event.name.startswith("aten::") for event in reading.timeline)
        why = "Dynamo looked up its cache" if looked_up else f"{asked} was requested"
        yield Finding(
            id="eager_fallback",
            seen=f"{why}, but no compiled region or generated kernel ran; {counted(operators, 'aten operator')} did",
            means="the code ran eagerly: Dynamo gave up (recompile limit, or a graph break around everything), or the "
            "compiled callable was not the one called",
            do="look for a recompile_limit warning; compile with fullgraph=True to see the reason",
        )


def _no_graphs(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    launched = bool(reading.graphs) or any("GraphLaunch" in api for api in reading.analysis.launches.runtime_launches)
    captures = sum(tally.count for tally in reading.apis if tally.name.endswith("StreamIsCapturing"))
    if launched or (asked != "cudagraphs" and not (captures and reading.regions)):
        return
    seen = "no graph was launched" + (
        f", though calls checked {captures} times whether one is being captured" if captures else ""
    )
    yield Finding(
        id="no_cuda_graph",
        seen=f"CUDA graphs were requested: {seen}" if asked == "cudagraphs" else f"compiled code {seen}",
        means="the host launched every kernel: graphs are skipped for mutated inputs, CPU scalars, and a forward with "
        "gradients whose backward has not run",
        do="call under torch.no_grad(), or run the backward; TORCH_LOGS=perf_hints names the reason",
    )


# ---- time ------------------------------------------------------------------------------------------------------------


def _cold(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    first = reading.first_call
    if first is None:
        return
    host, device = _over(first.host_us, first.rest_host_us), _over(first.kernel_us, first.rest_kernel_us)
    if max(host, device) >= COLD:
        yield Finding(
            id="cold_start",
            seen=f"the first call took {first.host_us:.0f} µs on the host and {first.kernel_us:.0f} µs on the device, "
            f"the others {first.rest_host_us:.0f} and {first.rest_kernel_us:.0f} ({max(host, device):.1f} times)",
            means="it still loads kernels, fills caches or raises clocks, even after a warm-up",
            do="exclude it; medians barely change, but a mean would",
        )


def _over(value: float, rest: float) -> float:
    return value / rest if rest > 0 else 1.0


def issue_us(reading: Reading) -> float | None:
    """µs from the start of the median call to its last launch, under the profiler; None where that is not known."""
    parts = reading.analysis.pre_ops
    if parts.time_to_first_launch is None or parts.between_launches is None:
        return None
    between: list[float | None] = [getattr(parts.between_launches, name) for name in PreOpParts.__struct_fields__]
    return parts.time_to_first_launch + sum(part for part in between if part is not None)


def _times(ratio: float) -> str:
    """A ratio with enough digits to distinguish it from 1 and `INFLATION`, on which the conclusion depends."""
    texts = [f"{ratio:.{digits}f}" for digits in (1, 2, 3, 4)]
    told = [text for text in texts if all((float(text) == limit) == (ratio == limit) for limit in (1.0, INFLATION))]
    return told[0] if told else texts[-1]


def _bound(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """What limits the call: issuing the work, or doing it."""
    issue = issue_us(reading)
    device = median(reading.analysis.kernel_us) if reading.analysis.kernel_us else 0.0
    if reading.device != "cuda" or issue is None or not device or not issue or reading.incomplete:
        return
    idle = f"; the device idles {reading.idle_share:.0%} of the call" if reading.idle_share is not None else ""
    seen = f"host: {issue:.0f} µs to issue a call (under the profiler); device: {device:.0f} µs{idle}"
    if issue < device:
        yield Finding(
            id="gpu_bound",
            seen=f"{seen}; device/host {_times(device / issue)}x",
            means="the device limits the call, the more so without the profiler, which slows only the host",
            do="make the kernels faster or move fewer bytes; a CUDA graph saves only idle time",
        )
    elif issue >= INFLATION * device:
        yield Finding(
            id="overhead_bound",
            seen=f"{seen}; host/device {_times(issue / device)}x",
            means="the host limits the call: the device waits for launches, even allowing for the profiler's cost",
            do="use a larger batch, a CUDA graph (mode='reduce-overhead') or fewer operators, not faster kernels",
            cost_us=issue - device,
        )
    else:
        yield Finding(
            id="bound_unclear",
            seen=f"{seen}; host/device {_times(issue / device)}x",
            means=f"either may limit the call: the profiler inflates host time up to {INFLATION:g}x",
            do="time the call without the profiler, with and without synchronisation, and compare with the device time",
        )


def _varying(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """Kernels whose time differs between calls."""
    seen = []
    for kernel, spread in zip(reading.analysis.kernels, reading.kernel_spread, strict=False):
        low, high = (spread.p20, spread.p80) if spread.p20 is not None and spread.p80 is not None else (None, None)
        if low is None or high is None:
            low, high = (spread.low, spread.high) if spread.n > 2 else (spread.median, spread.median)
        if high - low > max(VARIES_US, VARIES * spread.median):
            name = kernel.role if kernel.role != "other" else kernel.name[:60]
            seen.append(f"{name}: {low:.1f} to {high:.1f} µs around {spread.median:.1f}")
    if seen:
        yield Finding(
            id="kernel_varies",
            seen=f"kernel times vary between calls: {'; '.join(seen)}",
            means="clock, cache or background load changed; such a difference between two traces is not a result",
            do="record more calls, wait for a steady clock, and compare medians with their spread",
        )


def _launched_at(reading: Reading) -> list[float]:
    return [event.start_us for event in reading.timeline if event.category == "api" and event.launches]


def _final_wait(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """A long synchronisation behind the last launch of the call."""
    last_launch = max(_launched_at(reading), default=0.0)
    waits = [
        event
        for event in reading.timeline
        if event.category == "api" and is_sync(event.name) and event.start_us >= last_launch
    ]
    host = median(reading.analysis.host_us) if reading.analysis.host_us else 0.0
    longest = max(waits, key=lambda event: event.duration_us, default=None)
    if longest and longest.duration_us >= max(WAIT_US, WAIT_SHARE * host):
        yield Finding(
            id="long_synchronise",
            seen=f"{longest.name} at the end of a call waits {longest.duration_us:.0f} of its {host:.0f} µs",
            means="the host had issued everything and waited for the device: device time, not host cost",
            do="do not add it to kernel time; synchronise once after many calls",
        )


def _waits(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """Synchronisations between launches, which drain the device in the middle of a call."""
    launches = _launched_at(reading)
    last = max(launches, default=0.0)
    first = min(launches, default=0.0)
    waits = [
        event
        for event in reading.timeline
        if event.category == "api" and is_sync(event.name) and first < event.start_us < last
    ]
    if waits:
        total = sum(event.duration_us for event in waits)
        yield Finding(
            id="wait_inside_call",
            seen=f"{counted(len(waits), 'synchronisation')} between the launches of a call, {total:.0f} µs in all",
            means="the host waits for the device, then has to refill its queue: .item(), .cpu(), nonzero, a print",
            do="keep values on the device until the end of the call",
            cost_us=total,
        )
