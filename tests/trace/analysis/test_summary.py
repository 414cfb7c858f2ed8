"""What traces in the wild are like: each trait in a small trace of its own, and what the reading says of it."""

from __future__ import annotations

import pytest
from support.readings import many, of, without
from support.timeline import EAGER, GEMM, Timeline

from mlpfusion.errors import MeasurementError, UsageError
from mlpfusion.trace.analysis.summary import read

# ---- which calls


def test_the_innermost_repeated_annotation_of_the_user_is_the_call() -> None:
    made = many(name="block")
    made.call(900, 3000, "epoch").call(995, 120, "layer").call(1995, 120, "layer").call(2995, 120, "layer")
    for start in (1000, 2000, 3000):
        made.call(start + 1, 99, "## Call CompiledFxGraph fab ##").call(start + 2, 9, "aten_data: [1, 2]")
        made.call(start + 3, 2, "Optimizer.step#AdamW.step").call(start + 3, 1, "record_param_comms")
        made.call(start + 101, 3, "logging")  # launches nothing
    found = of(made)
    assert (found.call.by, found.call.name, found.call.count) == ("annotation", "block", 3)
    assert found.analysis.calls == 3
    assert "innermost repeated annotation" in found.call.reason


def test_siblings_are_told() -> None:
    made = many(name="forward")
    for start in (1200, 2200, 3200):
        made.call(start, 30, "backward").launch(GEMM, start + 2, start + 50, 5)
    found = of(made)
    assert found.call.name == "forward"
    assert [(one.name, one.count) for one in found.call.others] == [("backward", 3)]


def test_without_an_annotation_profiler_steps_are_the_calls() -> None:
    made = many(name="once")
    for index, entry in enumerate(entry for entry in made.entries if entry["name"] == "once"):
        entry["name"] = f"ProfilerStep#{index + 4}"
    found = of(made)
    assert (found.call.by, found.call.name, found.call.count) == ("profiler_step", "ProfilerStep", 3)
    for entry in made.entries:  # as torch 1.8 to 1.10 wrote them
        entry["cat"] = "Operator" if entry["name"].startswith("ProfilerStep") else entry["cat"]
    assert of(made).call == found.call
    assert of(made, call="ProfilerStep").analysis == found.analysis


def test_without_either_the_whole_trace_is_one_call() -> None:
    made = without(many(), "user_annotation")
    found = of(made)
    assert (found.call.by, found.call.count, found.analysis.calls) == ("whole_trace", 1, 1)
    assert len(found.analysis.kernels) == 15
    assert found.analysis.launches.runtime_launches == {"cudaLaunchKernel": 15}
    assert found.analysis.pre_ops.time_to_first_launch == 3.0  # from the first operator


def test_a_call_can_be_named_and_a_wrong_name_lists_the_right_ones() -> None:
    made = many(name="step").call(500, 3000, "epoch")
    assert of(made, call="step").analysis.calls == 3
    found = of(made, call="epoch")
    assert (found.call.by, found.call.count, len(found.analysis.kernels)) == ("asked", 1, 15)
    with pytest.raises(UsageError, match=r"no annotation named 'stop'; there are 'step' \(3\), 'epoch' \(1\)"):
        of(made, call="stop")
    with pytest.raises(UsageError, match="it has no annotation at all"):
        of(without(made, "user_annotation"), call="step")


# ---- what a trace lacks, or has too much of


def test_backlog_of_earlier_steps_is_counted_apart() -> None:
    """P1."""
    made = many().device("backlog", 1020, 5, 999).device("no id", 1030, 5, 0)
    made.call(4000, 100).op("aten::mm", 4001, 9).launch(GEMM, 4005, 3990, 5)
    found = of(made)
    assert (found.integrity.orphans, found.integrity.early) == (2, 1)
    assert found.analysis.launches.kernels == 5


def test_calls_that_lost_kernels_are_left_out() -> None:
    """P2."""
    made = many(4)
    kernels = [index for index, entry in enumerate(made.entries) if entry["cat"] == "kernel"]
    for index in (kernels[11], kernels[2]):
        del made.entries[index]
    found = of(made)
    assert found.integrity.lost == 2
    assert found.incomplete is None
    assert found.analysis.calls == 2  # the figures are of the calls that lost nothing
    assert [(odd.index, odd.work, odd.missing) for odd in found.odd_calls] == [(0, 4, 1), (2, 4, 1)]
    assert of(many(4)).odd_calls == ()


def test_removed_kernels_of_every_call_make_a_trace_incomplete() -> None:
    """P2."""
    made = many(4)
    kernels = [index for index, entry in enumerate(made.entries) if entry["cat"] == "kernel"]
    for index in kernels[::-5]:
        del made.entries[index]
    assert of(made).incomplete == "4 launches inside calls without device event"


def test_a_graph_replay_counts_launches_and_kernels_apart() -> None:
    """P4."""
    made = Timeline()
    for index in range(1, 41):
        start = 10_000 * index
        made.call(start, 90).api("cudaGraphLaunch", start + 10, 50, correlation=index)
        for position in range(100):
            made.device("a kernel", start + 20 + 3 * position, 2, index)
        made.device("Memset (Device)", start + 330, 1, index)
    found = of(made)
    (graph,) = found.graphs
    assert (graph.api, graph.launches, graph.kernels, graph.memsets) == ("cudaGraphLaunch", 1, 100, 1)
    assert found.analysis.launches.runtime_launches == {"cudaGraphLaunch": 1}
    assert found.analysis.launches.kernels == 100
    assert found.idle_share is not None
    assert 0.3 < found.idle_share < 0.5
    assert found.pre_ops_reason is not None
    assert found.analysis.pre_ops.time_to_first_launch is None


def test_no_gpu_event_is_an_error_and_never_zero() -> None:
    """P7."""
    with pytest.raises(MeasurementError, match="no GPU events"):
        of(without(many(), "kernel"))
    text = without(many(), "kernel", "cuda_runtime").text()
    named = text.replace('{"schema', '{"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}], "schema')
    with pytest.raises(MeasurementError, match="although it names an NVIDIA A100-SXM4-80GB"):
        read(named.encode())
    for found in (read(named.encode(), device="cpu"), read(text.encode())):
        assert found.device == "cpu"
        assert "no GPU events" in found.notes[0]
        assert [kernel.name for kernel in found.analysis.kernels][:2] == ["aten::mm", "aten::gelu"]
        assert found.idle_share is None


@pytest.mark.parametrize("events", ["[]", '[{"ph": "M", "name": "process_name", "pid": 1, "args": {}}]'])
def test_nothing_and_metadata_only_are_refused(events: str) -> None:
    """P7, P19."""
    with pytest.raises(UsageError, match="no timed events"):
        read(f'{{"traceEvents": {events}}}'.encode())


def test_device_time_is_a_union_never_a_sum_over_nested_operators() -> None:
    """P8."""
    made = Timeline()
    for index in range(1, 4):
        start = 1000 * index
        made.call(start, 90)
        for depth in range(5):
            made.op(f"aten::level{depth}", start + depth, 60 - 2 * depth)
        made.launch("a", start + 10, start + 20, 30).launch("b", start + 12, start + 40, 30, stream=8)
    found = of(made)
    assert found.analysis.kernel_us == (50.0,) * 3
    assert [(use.stream, use.events, use.busy_us) for use in found.streams] == [("7", 1, 30.0), ("8", 1, 30.0)]
    assert found.idle_share == pytest.approx(40 / 90)


def test_two_launches_of_one_name_are_two_kernels() -> None:
    """P9."""
    found = of(many())
    named = [kernel for kernel in found.analysis.kernels if kernel.name == GEMM]
    assert len(named) == 3
    assert sum(kernel.time_us or 0 for kernel in named) == 15.0
    assert len(found.kernel_spread) == 5


@pytest.mark.parametrize("name", ["TorchDynamo Cache Lookup", None])
def test_a_lookup_that_this_version_does_not_emit_is_unknown(name: str | None) -> None:
    """P12."""
    made = Timeline()
    for index, lookup in enumerate((22.5, 35.6, 49.5), 1):
        start = 1000.0 * index
        made.call(start, 200)
        if name:
            made.op(name, start + 1, lookup)
        made.op("Torch-Compiled Region: 0/0", start + 60, 100).op("aten::mm", start + 80, 40)
        made.launch(GEMM, start + 100, start + 250, 5)
    found = of(made).analysis.pre_ops
    assert found.dynamo_cache_lookup == (22.5 if name else None)
    assert found.compiled_region_self == 20.0
    assert found.time_to_first_launch == 100.0


def test_a_compilation_inside_a_call_is_told() -> None:
    """C5, P21."""
    made = many().op("_compile.compile_inner", 2001, 30).op("entire_frame_compile (dynamo_timed)", 2002, 28)
    made.op("entire_frame_compile", 100, 30)  # before the calls
    found = of(made)
    assert {tally.name for tally in found.compiling} == {
        "_compile.compile_inner",
        "entire_frame_compile (dynamo_timed)",
    }
    assert found.analysis.faults == ("1 of 3 calls were compiled while they were measured",)


APIS = (
    "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchCooperativeKernel",
    "hipLaunchKernel", "hipExtLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipGraphLaunch",
)  # fmt: skip


@pytest.mark.parametrize("api", APIS)
def test_every_launch_api_links_its_kernels(api: str) -> None:
    """P15."""
    made = Timeline()
    for index in range(1, 4):
        made.call(1000 * index, 90).op("aten::mm", 1000 * index + 1, 9)
        made.launch("a kernel", 1000 * index + 3, 1000 * index + 20, 5, api=api)
    found = of(made)
    assert found.analysis.launches.runtime_launches == {api: 1}
    assert (found.integrity.orphans, found.integrity.lost, found.incomplete) == (0, 0, None)


@pytest.mark.parametrize("base", [0, 1_700_000_000_000_000])
@pytest.mark.parametrize("shift", [0, 0.003])
def test_every_way_to_write_a_time_tells_the_same(base: int, shift: float) -> None:
    """P16: integers, fractions, absolute, relative, strings, ids past 2^53 and past 2^63."""
    made = Timeline(base)
    for index in range(3):
        made.mlp(1000 * (index + 1) + shift)
    assert of(made).analysis == of(many()).analysis
    import json

    document = json.loads(made.text(), parse_float=str, parse_int=int)
    for entry in document["traceEvents"]:
        for key in ("ts", "dur", "tid"):
            entry[key] = str(entry[key])
        if "correlation" in entry["args"]:
            entry["args"]["correlation"] = str(2**64 - 5 - int(entry["args"]["correlation"]))
    assert read(json.dumps(document).encode()).analysis == of(many()).analysis


def test_missing_parts_are_no_crash() -> None:
    """P19: no steps, no fills, no categories of flows, no correlation of an operator."""
    made = many()
    made.entries += [
        {"ph": "s", "id": 1, "ts": 1, "dur": 0, "pid": 1, "tid": 1},
        {"ph": "f", "id": 1, "ts": 1, "dur": 0, "cat": "fwdbwd"},
        {"ph": "X", "name": "nameless category", "ts": 3, "dur": 1},
        {"ph": "i", "ts": 3, "dur": 0},
    ]
    assert of(made).analysis == of(many()).analysis


def test_without_operators_there_are_no_pre_ops_but_all_else() -> None:
    """P23."""
    found = of(without(many(), "cpu_op"))
    assert found.analysis.launches.runtime_launches == {"cudaLaunchKernel": 5}
    assert found.analysis.kernel_us == (25.0,) * 3
    assert found.analysis.pre_ops.time_to_first_launch is None
    assert found.pre_ops_reason == "the trace has no operators of the host: the profiler did not record CPU activity"


def test_a_trace_of_the_device_alone_is_one_call() -> None:
    """P23."""
    found = of(without(many(), "cpu_op", "cuda_runtime", "user_annotation"))
    assert (found.call.by, len(found.analysis.kernels), found.integrity.orphans) == ("whole_trace", 15, 0)
    assert {kernel.launched_by for kernel in found.analysis.kernels} == {None}
    assert found.analysis.launches.runtime_launches == {}
    assert found.pre_ops_reason is not None
    assert any("no API calls are recorded" in note for note in found.notes)


def test_the_tutorials_counts() -> None:
    """P26: 5 kernels of eager and 4 of compile, with the same three products, 3 occupancy queries."""
    fused = "triton_poi_fused__unsafe_view_gelu_mul_0"
    for kernels in (EAGER, ((GEMM, "aten::mm"), (GEMM, "aten::mm"), (fused, fused), (GEMM, "aten::mm"))):
        made = Timeline()
        for index in range(1, 4):
            made.mlp(1000 * index, kernels)
            for position in range(3):
                made.api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 1000 * index + 10 * position + 3, 1)
        launches = of(made).analysis.launches
        assert (launches.kernels, launches.occupancy_queries) == (len(kernels), 3)


def test_eager_instead_of_compiled_shows_no_region() -> None:
    """C4: what a fall-back to eager looks like is in the reading."""
    found = of(many())
    assert found.regions == ()
    assert found.analysis.pre_ops.compiled_region_self is None
    assert not any(kernel.name.startswith("triton_") for kernel in found.analysis.kernels)


def test_no_graph_launch_is_no_graph() -> None:
    """C9."""
    assert of(many()).graphs == ()
    assert "cudaGraphLaunch" not in of(many()).analysis.launches.runtime_launches


def test_the_copy_of_a_bias_is_work_of_its_own() -> None:
    """C10: launches and kernels are two numbers."""
    copy = "Memcpy DtoD (Device -> Device)"
    made = many().mlp(9000)
    made = Timeline()
    for index in range(1, 4):
        made.mlp(1000 * index, ((copy, "aten::addmm"), (GEMM, "aten::addmm"), (GEMM, "aten::addmm")))
        for entry in made.entries[-15:]:
            if entry["name"] == "cudaLaunchKernel" and entry["args"]["correlation"] % 3 == 1:
                entry["name"] = "cudaMemcpyAsync"
    found = of(made).analysis
    assert (found.launches.kernels, found.launches.memcpys) == (2, 1)
    assert found.launches.runtime_launches == {"cudaLaunchKernel": 2, "cudaMemcpyAsync": 1}
    assert found.kernels[0].role == "memcpy"
