"""Findings: each is said of a small trace that has its trait, with the numbers, and not of one that has not."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.timeline import EAGER, GELU, GEMM, MUL, Timeline

from mlpfusion.errors import MlpfusionError
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.records.trace import Finding

FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
COMPILED = ((GEMM, "aten::mm"), (GEMM, "aten::mm"), (FUSED, FUSED), (GEMM, "aten::mm"))
COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda()#3}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
)
LOOKUP = "TorchDynamo Cache Lookup"


def every(calls: int = 5, kernels: Any = EAGER, each: Callable[[Any, int, int], object] | None = None) -> Any:
    """A trace of calls 1000 µs apart; `each` adds to a call, given the timeline, the call's start and its index."""
    made = Timeline()
    for index in range(calls):
        start = 1000 * (index + 1)
        made.mlp(start, kernels)
        if each:
            each(made, start, index)
    return made


def said(made: Any, folder: Path, **options: Any) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings(read(made.write(folder)), **options)}


def test_an_ordinary_eager_trace(tmp_path: Path) -> None:
    found = said(every(), tmp_path)
    assert set(found) == {"bound_unclear", "fusable_kernels"}
    assert all(each.seen and each.means and each.do for each in found.values())


# ---- the trace itself ------------------------------------------------------------------------------------------------


def test_orphans_are_said(tmp_path: Path) -> None:
    made = every().device(GEMM, 500, 5, 999)
    assert said(made, tmp_path)["orphan_events"].seen.startswith("1 device event without a launch")
    assert "orphan_events" not in said(every(), tmp_path)


def test_a_kernel_before_its_launch_is_said(tmp_path: Path) -> None:
    made = every(each=lambda made, start, index: made.launch(GEMM, start + 80, start + 79, 2))
    assert "5 device events that start before their launch" in said(made, tmp_path)["orphan_events"].seen


def test_lost_events_are_said(tmp_path: Path) -> None:
    made = every().api("cudaLaunchKernel", 1080, correlation=999)
    found = said(made, tmp_path)
    assert found["missing_events"].seen == "1 launch inside calls without device event"
    assert not {"gpu_bound", "overhead_bound", "bound_unclear"} & set(found)  # no conclusions from a broken trace
    assert "missing_events" not in said(every(), tmp_path)


@pytest.mark.parametrize(
    ("event", "expected"),
    [("Activity Buffer Request", "profiler_buffer"), ("Buffer Flush", "profiler_buffer"),
     ("Lazy Function Loading", "initialisation")],
)  # fmt: skip
def test_the_profilers_own_pauses_are_said(tmp_path: Path, event: str, expected: str) -> None:
    inside = every().add("overhead", event, 2050, 30, tid=0)
    assert said(inside, tmp_path)[expected].seen == f"inside calls: 1x {event}, 30 µs"
    outside = every().add("overhead", event, 1500, 30, tid=0)
    assert expected not in said(outside, tmp_path)


# ---- compilation -----------------------------------------------------------------------------------------------------


def region(number: Callable[[int], str]) -> Any:
    def add(made: Any, start: int, index: int) -> None:
        made.op(LOOKUP, start, 1)
        made.op(f"Torch-Compiled Region: {number(index)}", start + 1, 99)

    return every(kernels=COMPILED, each=add)


def test_an_id_alone_is_no_recompile(tmp_path: Path) -> None:
    found = said(region(lambda index: "0/1"), tmp_path)
    assert not {"recompile", "graph_changed", "eager_fallback"} & set(found)


def test_compilation_inside_a_call_is_said(tmp_path: Path) -> None:
    made = every(kernels=COMPILED).op("_compile.compile_inner", 3001, 80)
    assert "1x _compile.compile_inner, 80 µs" in said(made, tmp_path)["recompile"].seen
    before = every(kernels=COMPILED).op("_compile.compile_inner", 500, 80)
    assert "recompile" not in said(before, tmp_path)


def test_two_ids_of_one_frame_between_calls_are_said(tmp_path: Path) -> None:
    switched = said(region(lambda index: "0/0" if index < 2 else "0/1"), tmp_path)["graph_changed"]
    assert switched.seen.endswith("0/0 in 2 (from 1 to 2), 0/1 in 3 (from 3 to 5)")
    assert "recompiled" in switched.means
    turns = said(region(lambda index: f"0/{index % 2}"), tmp_path)["graph_changed"]
    assert "alternate" in turns.means


def test_two_ids_of_one_frame_in_every_call_are_two_modules(tmp_path: Path) -> None:
    def both(made: Any, start: int, index: int) -> None:
        made.op("Torch-Compiled Region: 0/0", start + 1, 40).op("Torch-Compiled Region: 0/1", start + 50, 40)

    assert "graph_changed" not in said(every(kernels=COMPILED, each=both), tmp_path)


def test_other_frames_are_no_change(tmp_path: Path) -> None:
    assert "graph_changed" not in said(region(lambda index: f"{index}/0"), tmp_path)


def test_a_fallback_to_eager_is_said(tmp_path: Path) -> None:
    looked = every(each=lambda made, start, index: made.op(LOOKUP, start, 1))
    assert "Dynamo looked up its cache" in said(looked, tmp_path)["eager_fallback"].seen
    assert "compile was requested" in said(every(), tmp_path, asked="compile")["eager_fallback"].seen
    assert "eager_fallback" not in said(every(), tmp_path)
    assert "eager_fallback" not in said(every(kernels=COMPILED), tmp_path, asked="compile")


def test_missing_cuda_graphs_are_said_where_they_were_requested(tmp_path: Path) -> None:
    assert "no_cuda_graph" in said(every(kernels=COMPILED), tmp_path, asked="cudagraphs")
    asks = every(kernels=COMPILED, each=lambda made, start, index: (
        made.op("Torch-Compiled Region: 0/0", start + 1, 98), made.api("cudaStreamIsCapturing", start + 1))
    )  # fmt: skip
    assert "no_cuda_graph" not in said(asks, tmp_path)  # Triton's launcher and the allocator ask this in any mode
    assert "no_cuda_graph" not in said(every(kernels=COMPILED), tmp_path)

    def replay(made: Any, start: int, index: int) -> None:
        made.launch(GEMM, start + 60, start + 110, 5, api="cudaGraphLaunch").api("cudaStreamIsCapturing", start + 55)

    assert "no_cuda_graph" not in said(every(each=replay), tmp_path, asked="cudagraphs")


def test_autotuning_inside_a_call_is_said(tmp_path: Path) -> None:
    def tune(made: Any, start: int, index: int) -> None:
        for number in range(30 if index == 0 else 1):
            made.launch("my_kernel", start + 60 + number, start + 200 + 3 * number, 2)

    assert "call 1 ran my_kernel 30 times, the others 1" in said(every(each=tune), tmp_path)["autotune"].seen
    named = every().op("CachingAutotuner.benchmark_all_configs (dynamo_timed)", 1001, 90)
    found = said(named, tmp_path)
    assert "benchmark_all_configs" in found["autotune"].seen
    assert "recompile" not in found
    twice = every(each=lambda made, start, index: made.launch("my_kernel", start + 60, start + 120, 2))
    assert "autotune" not in said(twice, tmp_path)


@pytest.mark.parametrize("name", ["my_kernel", GEMM, "fused_moe_kernel", FUSED])
@pytest.mark.parametrize("by", [None, "ProfilerStep#3"])
def test_a_kernel_of_many_layers_is_no_autotuning(tmp_path: Path, name: str, by: str | None) -> None:
    made = Timeline()
    if by:
        made.call(0, 2000, by)
    made.op("aten::mm", 0, 5)
    for number in range(120):
        made.launch(name, 10 + 5 * number, 12 + 5 * number, 2)
    assert "autotune" not in said(made, tmp_path)


def test_a_call_of_twice_the_work_is_no_autotuning(tmp_path: Path) -> None:
    """Two micro-batches instead of one: all its kernels run more often, not one alone."""

    def layers(made: Any, start: int, index: int) -> None:
        for number in range(80 if index == 2 else 40):
            made.launch("my_kernel", start + 100 + 4 * number, start + 200 + 4 * number, 2)
            made.launch(GEMM, start + 102 + 4 * number, start + 202 + 4 * number, 2)

    assert "autotune" not in said(every(each=layers), tmp_path)


# ---- time ------------------------------------------------------------------------------------------------------------


def calls_of(lengths: list[int], runs: int = 5) -> Any:
    """Calls of these lengths, each with one product that is issued 10 µs after its start and runs `runs` µs."""
    made = Timeline()
    for index, length in enumerate(lengths):
        start = 10_000 * (index + 1)
        made.call(start, length).op("aten::mm", start + 5, 10).launch(GEMM, start + 10, start + 20, runs)
    return made


def test_a_cold_first_call_is_said(tmp_path: Path) -> None:
    found = said(calls_of([400, 100, 101, 99, 100]), tmp_path)["cold_start"]
    assert "first call took 400 µs on the host" in found.seen
    assert "(4.0 times)" in found.seen
    assert "cold_start" not in said(calls_of([104, 100, 101, 99, 100]), tmp_path)


def test_what_limits_a_call_is_said_with_the_margin(tmp_path: Path) -> None:
    found = said(calls_of([100] * 5, runs=80), tmp_path)
    assert "device/host 8.0x" in found["gpu_bound"].seen
    # 11 to the end of the launch, 78 after the kernel, all with an idle device.
    found = said(calls_of([100] * 5, runs=2), tmp_path)
    assert "host/device 44.0x" in found["overhead_bound"].seen
    assert found["overhead_bound"].cost_us == 89
    # The profiler may have doubled the host's time, so a smaller margin settles nothing.
    assert "bound_unclear" in said(calls_of([100] * 5, runs=40), tmp_path)


@pytest.mark.parametrize(
    ("issue", "expected", "ratio"),
    [(199, "bound_unclear", "1.99"), (200, "overhead_bound", "2.0"), (201, "overhead_bound", "2.01"),
     (99, "gpu_bound", "1.01"), (100, "bound_unclear", "1.0"), (150, "bound_unclear", "1.5")],
)  # fmt: skip
def test_a_ratio_has_the_digits_that_its_conclusion_needs(
    tmp_path: Path, issue: int, expected: str, ratio: str
) -> None:
    made = Timeline()
    for start in (1000, 2000, 3000):
        made.call(start, 400).op("aten::mm", start, 300).launch(GEMM, start + issue, start + 300, 100)
    found = said(made, tmp_path)
    assert f" {ratio}x" in found[expected].seen


def test_a_kernel_that_varies_is_said(tmp_path: Path) -> None:
    def vary(by: int) -> Any:
        return every(each=lambda made, start, index: made.launch("k", start + 80, start + 200, 50 + by * index))

    assert "k: 50.0 to 130.0 µs around 90.0" in said(vary(20), tmp_path)["kernel_varies"].seen
    assert "kernel_varies" not in said(vary(1), tmp_path)


def test_a_long_final_synchronise_is_said(tmp_path: Path) -> None:
    def wait(length: float) -> Any:
        return every(each=lambda made, start, index: made.api("cudaDeviceSynchronize", start + 60, length))

    found = said(wait(38), tmp_path)
    expected = "cudaDeviceSynchronize at the end of a call waits 38 of its 100 µs, 1 µs of it with an idle device"
    assert found["long_synchronise"].seen == expected
    assert "wait_inside_call" not in found
    assert "long_synchronise" not in said(wait(5), tmp_path)


def test_a_wait_between_launches_is_said(tmp_path: Path) -> None:
    made = every(each=lambda made, start, index: made.api("cudaStreamSynchronize", start + 30.5, 1))
    found = said(made, tmp_path)
    assert found["wait_inside_call"].seen.startswith("1 synchronisation between the launches")
    assert "long_synchronise" not in found


# ---- device work -----------------------------------------------------------------------------------------------------


def test_a_hidden_copy_before_a_product_is_said(tmp_path: Path) -> None:
    copy = ("Memcpy DtoD (Device -> Device)", "aten::addmm")
    found = said(every(kernels=(copy, (GEMM, "aten::addmm"))), tmp_path)
    assert found["copy_before_gemm"].seen.startswith("1 device-to-device copy right before a matrix product, 5.0 µs")
    assert found["copy_before_gemm"].seen.endswith("1 inside addmm")
    assert "extra_copies" not in found  # said once
    after = said(every(kernels=((GEMM, "aten::mm"), copy)), tmp_path)
    assert "copy_before_gemm" not in after
    assert "extra_copies" in after


def test_a_fill_before_a_product_is_said(tmp_path: Path) -> None:
    fill = ("Memset (Device)", "aten::mm")
    assert "1 fill right" in said(every(kernels=(fill, (GEMM, "aten::mm"))), tmp_path)["memset_before_gemm"].seen
    assert "memset_before_gemm" not in said(every(kernels=((GEMM, "aten::mm"), fill)), tmp_path)


def test_a_fill_inside_a_graph_is_no_launch(tmp_path: Path) -> None:
    def replay(made: Any, start: int, index: int) -> None:
        made.api("cudaGraphLaunch", start + 1, correlation=100 + index)
        made.device("Memset (Device)", start + 20, 2, 100 + index).device(GEMM, start + 30, 5, 100 + index)

    inside = said(every(kernels=(), each=replay), tmp_path)["memset_before_gemm"].do
    assert inside == "count it with its product; the CUDA graph replays it without a host launch"
    loose = said(every(kernels=(("Memset (Device)", "aten::mm"), (GEMM, "aten::mm"))), tmp_path)["memset_before_gemm"]
    assert loose.do.endswith("one more host launch, which a CUDA graph removes")


def test_occupancy_queries_are_said(tmp_path: Path) -> None:
    name = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
    made = every(each=lambda made, start, index: made.api(name, start + 1))
    assert said(made, tmp_path)["occupancy_query"].seen == "1 occupancy query a call"
    assert "occupancy_query" not in said(every(), tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"), [("Memcpy HtoD (Pageable -> Device)", "host_to_device"),
                           ("Memcpy DtoH (Device -> Pinned)", "device_to_host")],
)  # fmt: skip
def test_traffic_with_the_host_is_said(tmp_path: Path, name: str, expected: str) -> None:
    found = said(every(kernels=((GEMM, "aten::mm"), (name, "aten::copy_"))), tmp_path)
    assert found[expected].seen.startswith(f"1 {name[7:11]} copy a call, 5.0 µs")
    assert ("pageable" in found[expected].seen) == ("Pageable" in name)
    before = every()
    before.launch(name, 500, 510, 5)
    assert expected not in said(before, tmp_path)


@pytest.mark.parametrize("kernel", [COPY, "triton_poi_fused__to_copy_view_0", "triton_poi_fused_clone_1"])
def test_kernels_that_only_copy_are_said(tmp_path: Path, kernel: str) -> None:
    found = said(every(kernels=((kernel, "aten::copy_"), (GEMM, "aten::mm"))), tmp_path)
    assert found["extra_copies"].seen == "1 kernel for copies or casts alone, 5.0 µs a call (1x aten::copy_)"
    assert "extra_copies" not in said(every(), tmp_path)
    assert "extra_copies" not in said(every(kernels=(("triton_poi_fused__to_copy_mul_0", "x"),)), tmp_path)


def test_what_compile_could_fuse_is_said(tmp_path: Path) -> None:
    found = said(every(), tmp_path)
    assert found["fusable_kernels"].seen == (
        "2 of 5 kernels are PyTorch's own elementwise kernels and reductions, 10.0 µs a call "
        "(40% of the device's time): 1x gelu, 1x mul"
    )
    assert "already_fused" not in found


def test_that_nothing_is_left_to_fuse_is_said(tmp_path: Path) -> None:
    found = said(every(kernels=COMPILED), tmp_path)
    assert found["already_fused"].seen.endswith(f"fused already: {FUSED}")
    assert "fusable_kernels" not in found
    assert "already_fused" not in said(every(kernels=(("their_kernel", "x"),)), tmp_path)


@pytest.mark.parametrize(
    "kernels",
    [
        (("volta_sgemm_128x64_tn", "aten::mm"), (MUL, "aten::mul")),
        ((GEMM, "aten::mm"),),
        ((GEMM, "aten::mm"), ("triton_poi_fused_gelu_0", "x")),
        (("triton_tem_fused_mm_0", "x"),),
    ],
)
def test_where_nothing_is_fused_nothing_is_called_fused(tmp_path: Path, kernels: Any) -> None:
    assert not {"already_fused", "fusable_kernels"} & set(said(every(kernels=kernels), tmp_path))


def test_many_small_kernels_are_said(tmp_path: Path) -> None:
    def small(count: int, length: float) -> Any:
        def add(made: Any, start: int, index: int) -> None:
            for number in range(count):
                made.launch(MUL, start + 55 + number, start + 150 + 20 * number, length)

        return every(each=add)

    assert "17 of 17 kernels run for less than 10 µs" in said(small(12, 3), tmp_path)["many_small_kernels"].seen
    assert "many_small_kernels" not in said(small(12, 15), tmp_path)
    assert "many_small_kernels" not in said(small(3, 3), tmp_path)


KERNELS = st.sampled_from([GEMM, GELU, MUL, FUSED, COPY, "k", "Memset (Device)", "Memcpy DtoD (Device -> Device)",
                           "Memcpy HtoD (Pageable -> Device)"])  # fmt: skip
OCCUPANCY = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
HOST = st.sampled_from([LOOKUP, "Torch-Compiled Region: 0/0", "Torch-Compiled Region: 1/2", "_compile.compile_inner",
                        "aten::mm", "cudaStreamSynchronize", OCCUPANCY])  # fmt: skip


@settings(max_examples=60)
@given(
    st.lists(st.tuples(KERNELS, st.integers(0, 990), st.integers(0, 900)), min_size=1, max_size=12),
    st.lists(st.tuples(HOST, st.integers(0, 990), st.integers(0, 500)), max_size=8),
    st.integers(1, 4),
    st.sampled_from([None, "compile", "cudagraphs"]),
)
def test_any_trace_has_findings(kernels: Any, host: Any, calls: int, asked: Any) -> None:
    made = Timeline()
    for index in range(calls):
        start = 10_000 * (index + 1)
        made.call(start, 1000)
        for name, at, length in kernels[index if index == 3 else 0 :]:
            made.launch(name, start + at, start + at + 5, length)
        for name, at, length in host:
            (made.api if name.startswith("cuda") else made.op)(name, start + at, length)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(MlpfusionError):
        found = findings(read(made.write(Path(folder))), asked=asked)
        assert len({each.id for each in found}) == len(found)
        assert all(each.seen and each.means and each.do for each in found)
