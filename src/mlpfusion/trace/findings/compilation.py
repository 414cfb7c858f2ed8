"""Derives findings about compilation: recompiles, autotuning, fallbacks, graphs that were not used."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from mlpfusion.records.trace import Finding
from mlpfusion.trace.findings.device import is_loose
from mlpfusion.trace.words import NAME, counted, tallied

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.trace import Reading

Asked: TypeAlias = Literal["compile", "cudagraphs"]

# A benchmark of configurations launches one kernel tens of times; a model's own loop rarely one more in one call.
AUTOTUNE_REPEATS: Final = 10

_SHOWN: Final = 3
_AUTOTUNES: Final = re.compile(r"autotun|benchmark_all_configs|bench_choices|coordinate_descent", re.IGNORECASE)
_LOOKUP: Final = "TorchDynamo Cache Lookup"


def of_compilation(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """All findings about compilation; `asked` is what the code was meant to run under, if that is known."""
    yield from _recompiled(reading)
    yield from _versions(reading)
    yield from _autotuned(reading)
    yield from _fallback(reading, asked)
    yield from _no_graphs(reading, asked)
    yield from _capture(reading)


def _recompiled(reading: Reading) -> Iterable[Finding]:
    """Compilation's own events inside calls. A region's id such as 0/1 is no sign of it."""
    compiling = [tally for tally in reading.compiling if not _AUTOTUNES.search(tally.name)]
    if compiling:
        longest = max(tally.longest_us for tally in compiling)
        yield Finding(
            id="recompile",
            seen=f"compilation inside recorded calls: {tallied(compiling)}",
            means=f"a call compiled while it was recorded, for up to {longest / 1000:.1f} ms: not a steady time",
            do="call every shape, dtype and grad mode once before recording; TORCH_LOGS=recompiles shows what changed",
            cost_us=max(tally.total_us for tally in compiling) / reading.call.count,
        )


def _versions(reading: Reading) -> Iterable[Finding]:
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
            cost_us=reading.call_us * (1 - max(one.calls for one in apart) / reading.call.count),
        )


def _autotuned(reading: Reading) -> Iterable[Finding]:
    """Benchmarks by name, or a call that ran one kernel tens of times more while all else was as usual."""
    named = [tally for tally in reading.compiling if _AUTOTUNES.search(tally.name)]
    repeats = [
        odd
        for odd in reading.odd_calls
        if odd.times >= odd.usual_times + AUTOTUNE_REPEATS and odd.others <= (odd.times - odd.usual_times) // 2
    ]
    seen = [tallied(named)] if named else []
    seen += [
        f"call {odd.index + 1} ran {odd.most[:NAME]} {odd.times} times, the others {odd.usual_times}"
        for odd in repeats[:_SHOWN]
    ]
    if len(repeats) > _SHOWN:
        seen.append(f"so did {len(repeats) - _SHOWN} more calls")
    if seen:
        longest = max((tally.total_us for tally in named), default=0.0)
        yield Finding(
            id="autotune",
            seen="; ".join(seen),
            means="kernel configurations were benchmarked inside recorded calls",
            do="run every shape once before recording; Triton and Inductor cache the choice",
            cost_us=(longest + sum(odd.extra_us for odd in repeats)) / reading.call.count,
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
            cost_us=sum(kernel.time_us or 0.0 for kernel in reading.analysis.kernels if is_loose(kernel)),
        )


def _no_graphs(reading: Reading, asked: Asked | None) -> Iterable[Finding]:
    """Graphs were requested, but none was launched. A trace alone does not tell that graphs were requested."""
    launched = bool(reading.graphs) or any("GraphLaunch" in api for api in reading.analysis.launches.runtime_launches)
    if asked != "cudagraphs" or launched:
        return
    yield Finding(
        id="no_cuda_graph",
        seen="CUDA graphs were requested: no graph was launched",
        means="the host launched every kernel: graphs are skipped for mutated inputs, CPU scalars, and a forward with "
        "gradients whose backward has not run",
        do="call under torch.no_grad(), or run the backward; TORCH_LOGS=perf_hints names the reason",
        cost_us=reading.device_use.working_us if reading.device_use else 0.0,
    )


def _capture(reading: Reading) -> Iterable[Finding]:
    """Calls that record a graph: their launches run nothing."""
    launches = reading.integrity.captured
    if launches:
        yield Finding(
            id="graph_capture",
            seen=f"{counted(launches, 'launch')} captured into a graph in {counted(reading.call.count, 'call')}",
            means="the calls record a graph instead of running it: their time is that of a capture, which happens once",
            do="record calls that replay the graph",
            cost_us=reading.call_us,
        )
