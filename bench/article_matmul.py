"""The tutorial's claims about matmul + add, eager and compiled, at a small and a large size."""

from __future__ import annotations

from typing import Final

from article_facts import (
    COUNTS,
    HOST,
    HOST_AND_KERNELS,
    KERNELS,
    NAMES,
    OVERHEAD,
    TRACED_HOST,
    Answer,
    Claim,
    Facts,
    UnseenError,
    around,
    counted,
    span,
)

from mlpfusion import units

PART: Final = "1 matmul + add"
WIDER: Final = 1.5  # times the others' median, for a step that a reader would call wider
MOSTLY_IDLE: Final = 0.9


def _host_longer(facts: Facts, name: str) -> Answer:
    facts.gpu()
    facts.shapes()
    host, device = facts.clock(name, "host_us"), facts.device(name)
    longer = "host" if host.median > device.median else "device"
    return Answer(device.below(host), f"host {host} µs, kernels {device} µs: the {longer}'s is the longer")


def _small_is_overhead_bound(facts: Facts) -> Answer:
    return _host_longer(facts, "small.eager")


def _large_is_compute_bound(facts: Facts) -> Answer:
    answer = _host_longer(facts, "large.eager")
    host, device = facts.clock("large.eager", "host_us"), facts.device("large.eager")
    return Answer(host.below(device), answer.figures)


def _gpu_is_idle(facts: Facts) -> Answer:
    facts.gpu()
    facts.shapes()
    share = facts.reading("small.eager").idle_share
    if share is None:
        raise UnseenError("the idle share is not known")
    n = facts.reading("small.eager").analysis.calls
    return Answer(share >= MOSTLY_IDLE, f"idle {share:.1%} of a call (median of {n} traced calls; the article: 98 %)")


def _first(facts: Facts, name: str) -> tuple[float, str]:
    """How much wider the first traced call is than the median of the rest, and in words."""
    reading = facts.reading(name)
    if reading.analysis.calls != reading.call.count:
        raise UnseenError(f"the calls of {name} differ in their kernels")
    times = reading.analysis.host_us
    rest = sorted(times[1:])
    middle = rest[len(rest) // 2]
    return times[0] / middle, f"first {units.microseconds(times[0])}, median of the {len(rest)} others {middle:.1f} µs"


def _cold_first_step(facts: Facts) -> Answer:
    facts.gpu()
    ratio, said = _first(facts, "small.cold")
    return Answer(ratio >= WIDER, f"{said}: {ratio:.1f}x, after one call waited and one warmed up by the schedule")


def _warm_steps(facts: Facts) -> Answer:
    facts.gpu()
    ratio, said = _first(facts, "small.eager")
    return Answer(ratio < WIDER, f"{said}: {ratio:.1f}x, after three more calls")


def _buffer_request(facts: Facts) -> Answer:
    facts.gpu()
    found = []
    for rung in facts.ladder.rungs:
        if rung.reading is not None:
            tallies = (*rung.reading.overhead, *rung.reading.overhead_outside)
            found += [(rung.name, tally) for tally in tallies if tally.name == "Activity Buffer Request"]
    if not found:
        raise UnseenError("no trace of this run has an Activity Buffer Request")
    name, tally = max(found, key=lambda each: each[1].longest_us)
    count = sum(tally.count for _, tally in found)
    return Answer(True, f"{count} in {len(found)} traces, the longest {tally.longest_us:.0f} µs, in {name}")


def _mm(facts: Facts) -> Answer:
    ops = facts.ops("small.eager")
    return Answer("aten::mm" in ops and "aten::bmm" not in ops, counted(ops))


def _bmm(facts: Facts) -> Answer:
    ops = facts.ops("batched.eager")
    return Answer("aten::bmm" in ops and "aten::mm" not in ops, counted(ops))


def _queries(facts: Facts, name: str) -> list[str]:
    facts.gpu()
    return around(facts.events(name), lambda event: event.category == "api" and "Occupancy" in event.name)


def _query_before_matmul(facts: Facts) -> Answer:
    gemms, owners = facts.gemms("small.eager"), _queries(facts, "small.eager")
    asked = owners.count("aten::mm")
    return Answer(asked >= len(gemms) > 0, f"{asked} queries for {len(gemms)} GEMM ({gemms[0].name})")


def _no_query_before_add(facts: Facts) -> Answer:
    owners = _queries(facts, "small.eager")
    if not owners:
        raise UnseenError("nothing asks for the occupancy in this run")
    return Answer("aten::add" not in owners, f"queries come from: {counted(owners)}")


def _footprints(facts: Facts) -> Answer:
    facts.gpu()
    kernels = {one.name: one for one in facts.kernels("small.eager")}
    found = [one for one in facts.rung("small.eager").footprints if one.kernel in kernels]
    heavy = [one for one in found if kernels[one.kernel].decoded.kind == "gemm"]
    light = [one for one in found if kernels[one.kernel].decoded.kind != "gemm"]
    if not heavy or not light or None in (heavy[0].registers, light[0].registers):
        raise UnseenError("the trace does not say what the kernels occupy")
    gemm, add = heavy[0], light[0]
    said = (
        f"GEMM {gemm.registers} registers, {gemm.shared_bytes} bytes of shared memory; "
        f"add {add.registers} registers, {add.shared_bytes} bytes (the article: 32 and 0)"
    )
    return Answer((gemm.registers or 0) > (add.registers or 0) and not add.shared_bytes, said)


def _kernel_times_vary(facts: Facts) -> Answer:
    reading = facts.reading("large.eager")
    gemms = facts.gemms("large.eager")
    index = reading.analysis.kernels.index(gemms[0])
    found = reading.kernel_spread[index]
    if found is None:
        raise UnseenError("no time of the kernel is known")
    ratio = found.high / found.low
    return Answer(ratio > 1.02, f"{found.low:.1f} to {found.high:.1f} µs over {found.n} calls: {ratio:.3f}x")


def _one_addmm(facts: Facts) -> Answer:
    ops = facts.ops("large.compile")
    one = ops.count("aten::addmm") == 1 and not {"aten::add", "aten::mm", "aten::matmul"} & set(ops)
    return Answer(one, f"compiled: {counted(ops)}")


def _copy_and_gemm(facts: Facts) -> Answer:
    copies, kernels = facts.copies("large.compile"), facts.kernels("large.compile")
    said = f"copies: {', '.join(f'{one.name} {span(one)} µs' for one in copies) or 'none'}; kernels: {len(kernels)}"
    return Answer(len(copies) == 1 and len(kernels) == 1 and "DtoD" in copies[0].name, said)


def _same_gemm(facts: Facts) -> Answer:
    eager, compiled = facts.gemms("large.eager"), facts.gemms("large.compile")
    same = [one.name for one in eager] == [one.name for one in compiled]
    names = [one.name for one in (*eager, *compiled)]
    return Answer(same, names[0] if same else f"eager {names[0]}, compiled {', '.join(names[1:])}")


def _launches_stay(facts: Facts) -> Answer:
    facts.gpu()
    eager, compiled = (
        facts.reading(name).analysis.launches.runtime_launches for name in ("large.eager", "large.compile")
    )
    said = f"eager {_apis(eager)}; compiled {_apis(compiled)}"
    return Answer(sum(compiled.values()) == sum(eager.values()), said)


def _apis(launches: dict[str, int]) -> str:
    return ", ".join(f"{count} {api}" for api, count in launches.items())


def _bias_costs(facts: Facts) -> Answer:
    eager, compiled = facts.gemms("large.eager"), facts.gemms("large.compile")
    if len(eager) != 1 or len(compiled) != 1:
        raise UnseenError(f"eager has {len(eager)} GEMMs and compiled {len(compiled)}")
    ours, theirs = span(eager[0]), span(compiled[0])
    return Answer(ours.below(theirs), f"GEMM eager {ours} µs, compiled {theirs} µs")


def _device_time_of_fusion(facts: Facts) -> Answer:
    eager, compiled = facts.device("large.eager"), facts.device("large.compile")
    said = f"eager {eager} µs, compiled {compiled} µs ({eager.median / compiled.median:.3f}x)"
    return Answer(abs(compiled.median / eager.median - 1) < 0.1, said)


def _cpu_time_rises(facts: Facts, size: str) -> Answer:
    facts.gpu()
    facts.shapes()
    eager, compiled = (facts.clock(f"{size}.{name}", "host_us") for name in ("eager", "compile"))
    traced = [facts.traced_host(f"{size}.{name}") for name in ("eager", "compile")]
    speedup, seen = eager.median / compiled.median, traced[0].median / traced[1].median
    said = (
        f"eager {eager} µs, compiled {compiled} µs: {speedup:.2f}x (in the traces {seen:.2f}x; "
        "the article: 0.5x, traced)"
    )
    return Answer(eager.below(compiled), said)


def _cpu_time_rises_small(facts: Facts) -> Answer:
    return _cpu_time_rises(facts, "small")


def _cpu_time_rises_large(facts: Facts) -> Answer:
    return _cpu_time_rises(facts, "large")


def _a_mode_helps(facts: Facts) -> Answer:
    plain, graphs = facts.clock("small.compile", "host_us"), facts.clock("small.cudagraphs", "host_us")
    eager = facts.clock("small.eager", "host_us")
    launched = facts.reading("small.cudagraphs").analysis.launches.runtime_launches
    if not any("GraphLaunch" in api for api in launched):
        raise UnseenError("CUDA graphs were requested, but no graph launch was observed")
    return Answer(graphs.below(plain), f"reduce-overhead {graphs} µs, default {plain} µs, eager {eager} µs")


def _lookup_each_call(facts: Facts) -> Answer:
    parts = facts.reading("large.compile").analysis.pre_ops
    if parts.dynamo_cache_lookup is None:
        raise UnseenError("this torch has no event for the lookup")
    return Answer(
        parts.dynamo_cache_lookup > 0, f"{parts.dynamo_cache_lookup:.1f} µs of the median call (n = {parts.n})"
    )


def _prologue_without_grad(facts: Facts) -> Answer:
    parts = facts.reading("large.compile").analysis.pre_ops
    if parts.aot_prologue is None:
        raise UnseenError("this torch has no event for the prologue")
    return Answer(
        parts.aot_prologue > 0, f"{parts.aot_prologue:.1f} µs of the median call (n = {parts.n}), under no_grad"
    )


def _one_region(facts: Facts) -> Answer:
    reading = facts.reading("large.compile")
    if not reading.regions:
        raise UnseenError("this torch has no event for compiled regions")
    said = ", ".join(f"{region.id} in {region.calls} calls" for region in reading.regions)
    same = len(reading.regions) == 1 and reading.regions[0].calls == reading.analysis.calls and not reading.compiling
    return Answer(same, f"regions: {said}; {sum(one.count for one in reading.compiling)} compilations while recording")


# Times are of this machine; what a claim says of the article's is in its figures.
CLAIMS = (
    Claim(
        "overhead-bound-small",
        PART,
        "at 64 the host needs longer than the GPU",
        HOST_AND_KERNELS,
        _small_is_overhead_bound,
    ),
    Claim("gpu-idle-small", PART, "at 64 the GPU is idle almost all the time", TRACED_HOST, _gpu_is_idle),
    Claim(
        "compute-bound-large",
        PART,
        "at 4096 the GPU needs longer than the host",
        HOST_AND_KERNELS,
        _large_is_compute_bound,
    ),
    Claim(
        "cold-first-step",
        PART,
        "without warm-up the first recorded step is wider, schedule or not",
        TRACED_HOST,
        _cold_first_step,
    ),
    Claim("warm-steps-alike", PART, "after warming up every step takes about the same", TRACED_HOST, _warm_steps),
    Claim("buffer-request", PART, "the profiler requests a buffer for its own events", OVERHEAD, _buffer_request),
    Claim("matmul-is-mm", PART, "2-D matmul resolves to aten::mm", NAMES, _mm),
    Claim("matmul-is-bmm", PART, "3-D matmul resolves to aten::bmm", NAMES, _bmm),
    Claim("query-before-gemm", PART, "cuBLAS asks for the occupancy before it launches", COUNTS, _query_before_matmul),
    Claim("no-query-before-add", PART, "the add launches without such a query", COUNTS, _no_query_before_add),
    Claim("footprint", PART, "the add needs few registers and no shared memory, the GEMM more", KERNELS, _footprints),
    Claim(
        "kernel-times-vary", PART, "one kernel on the same data varies from step to step", KERNELS, _kernel_times_vary
    ),
    Claim("one-addmm", PART, "compiled, matmul + add is a single aten::addmm", NAMES, _one_addmm),
    Claim("copy-and-gemm", PART, "compiled, the GPU runs a DtoD copy of the bias and one GEMM", COUNTS, _copy_and_gemm),
    Claim("same-gemm", PART, "compiled, the GEMM is the one that eager runs", NAMES, _same_gemm),
    Claim("launches-stay", PART, "compiled, as many calls as before hand work to the GPU", COUNTS, _launches_stay),
    Claim("bias-costs", PART, "compiled, the GEMM takes longer: its epilogue reads the bias", KERNELS, _bias_costs),
    Claim(
        "no-traffic-saved",
        PART,
        "compiled, the GPU needs about as long: no traffic is saved",
        KERNELS,
        _device_time_of_fusion,
    ),
    Claim("cpu-rises-small", PART, "at 64, compiling raises the CPU time of a step", HOST, _cpu_time_rises_small),
    Claim("cpu-rises-large", PART, "at 4096, compiling raises the CPU time of a step", HOST, _cpu_time_rises_large),
    Claim("a-mode-helps", PART, "another mode of torch.compile lowers the CPU time", HOST, _a_mode_helps),
    Claim(
        "lookup-each-call",
        PART,
        "Dynamo's cache lookup is paid by a call that is long compiled",
        TRACED_HOST,
        _lookup_each_call,
    ),
    Claim(
        "prologue-without-grad",
        PART,
        "AOT's wrapper runs even where no gradient is needed",
        TRACED_HOST,
        _prologue_without_grad,
    ),
    Claim("one-region", PART, "each step reuses the one compiled graph", COUNTS, _one_region),
)
