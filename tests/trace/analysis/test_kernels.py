"""Calls, launches, roles and times of a trace, on timelines made by hand and on recorded ones."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.timeline import EAGER, GELU, GEMM, MUL, SPLIT_K, WARMUP, Timeline

from mlpfusion.errors import MeasurementError, MlpfusionError
from mlpfusion.trace.analysis.kernels import analyse, union_ns
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings
from mlpfusion.trace.read import kineto

if TYPE_CHECKING:
    from mlpfusion.records.profile import Analysis

FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"


def gpu(made: Any, folder: Path, **options: Any) -> Analysis:
    return analyse(kineto.read(made.write(folder)), device="cuda", **options)


def roles(analysis: Analysis) -> list[str]:
    return [kernel.role for kernel in analysis.kernels]


def many(kernels: Any = EAGER, calls: int = 3) -> Any:
    made = Timeline()
    for index in range(calls):
        made.mlp(1000 * (index + 1), kernels)
    return made


def test_an_eager_call(tmp_path: Path) -> None:
    found = gpu(many(), tmp_path)
    assert found.calls == 3
    assert roles(found) == ["gate_gemm", "activation", "up_gemm", "mul", "down_gemm"]
    assert [kernel.time_us for kernel in found.kernels] == [5.0] * 5
    assert [kernel.op for kernel in found.kernels] == ["aten::mm", "aten::gelu", "aten::mm", "aten::mul", "aten::mm"]
    assert {kernel.launched_by for kernel in found.kernels} == {"cudaLaunchKernel"}
    assert found.launches.kernels == 5
    assert found.launches.runtime_launches == {"cudaLaunchKernel": 5}
    assert found.kernel_us == (25.0,) * 3
    assert found.host_us == (100.0,) * 3
    assert found.notes == ()


def test_absolute_fractional_times_give_the_same(tmp_path: Path) -> None:
    made = Timeline(1_700_000_000_000_000)
    for index in range(3):
        made.mlp(1000.003 * (index + 1))
    assert gpu(made, tmp_path) == gpu(many(), tmp_path)


def test_work_of_warmups_and_between_calls_is_not_counted(tmp_path: Path) -> None:
    made = Timeline().mlp(0, name=WARMUP)
    for index in range(1, 4):
        made.launch("flush", 1000 * index - 500, 1000 * index + 60, 20)  # runs while the call does
        made.mlp(1000 * index)
    made.launch(GEMM, 90, 1055, 30, api="cuLaunchKernelEx")  # a late kernel of the warm-up
    assert gpu(made, tmp_path) == gpu(many(), tmp_path)


def test_orphans_are_counted_apart(tmp_path: Path) -> None:
    made = many().device("backlog", 1020, 5, 999).device("no id", 1030, 5, 0)
    found = gpu(made, tmp_path)
    assert found.launches.kernels == 5
    assert found.notes == ("2 device events without a launch in the trace, in no call",)


def test_a_kernel_before_its_launch_is_said(tmp_path: Path) -> None:
    made = many(calls=2)
    made.mlp(3000, EAGER[:4]).op("aten::mm", 3042, 8).launch(GEMM, 3045, 3041, 5)
    found = gpu(made, tmp_path)
    assert found.calls == 3
    assert found.notes == ("1 device event before their launch: the two clocks disagree",)


def test_a_lost_kernel_makes_the_trace_incomplete(tmp_path: Path) -> None:
    made = many(calls=4)
    lost = next(index for index, entry in enumerate(made.entries) if entry["cat"] == "kernel")
    del made.entries[lost]
    found = gpu(made, tmp_path)
    assert found.calls == 3
    assert len(found.kernel_us) == 3
    assert found.faults == (
        "1 launch inside calls without device event",
        "calls differ in their number of kernels (4 in 1, 5 in 3 calls); figures are of the 3 of 4 calls that agree",
    )


@pytest.mark.parametrize(
    ("times", "fault"),
    [('"ts": "soon", "dur": 2', "1 event that could not be read"),
     ('"ts": 1001, "dur": -4', "1 event with an end before the beginning")],
)  # fmt: skip
def test_what_is_no_time_is_a_fault_but_hides_no_average(tmp_path: Path, times: str, fault: str) -> None:
    text, whole = many().op("aten::view", 1001, 2).text(), '"ts": 1001, "dur": 2'
    assert text.count(whole) == 1
    path = tmp_path / "t.json"
    path.write_text(text.replace(whole, times))
    assert analyse(kineto.read(path), device="cuda").faults == (fault,)
    reading = read(path)
    assert (reading.incomplete, reading.analysis.calls) == (None, 3)
    assert "missing_events" not in {finding.id for finding in findings(reading)}


def test_other_kernels_in_one_call_are_said(tmp_path: Path) -> None:
    made = many(calls=2).mlp(3000, ((GEMM, "aten::mm"), (MUL, "aten::mul"), *EAGER[2:]))
    found = gpu(made, tmp_path)
    assert found.calls == 2
    assert "calls differ in the names of their kernels" in found.faults[0]


def test_the_median_is_taken_by_position_not_by_name(tmp_path: Path) -> None:
    made = Timeline()
    for index, times in enumerate(((1, 10), (2, 20), (9, 90))):
        start = 1000 * index
        made.call(start, 100).op("aten::mm", start + 1, 8).launch(GEMM, start + 3, start + 20, times[0])
        made.op("aten::mm", start + 11, 8).launch(GEMM, start + 13, start + 40, times[1])
    assert [kernel.time_us for kernel in gpu(made, tmp_path).kernels] == [2.0, 20.0]


def test_backward_is_launched_by_another_thread(tmp_path: Path) -> None:
    made = Timeline()
    for index in range(1, 3):
        start = 1000 * index
        made.mlp(start).entries[-16]["dur"] = 400
        made.op("autograd::engine::evaluate_function: MmBackward0", start + 110, 90, tid=2)
        made.op("MmBackward0", start + 112, 80, tid=2)
        for at in (120, 140):
            made.op("aten::mm", start + at, 10, tid=2).launch(GEMM, start + at + 2, start + at + 60, 5, tid=2)
    found = gpu(made, tmp_path)
    assert roles(found) == ["gate_gemm", "activation", "up_gemm", "mul", "down_gemm", "other", "other"]
    assert found.launches.runtime_launches == {"cudaLaunchKernel": 7}


def test_work_of_another_thread_is_backward_without_operators_too(tmp_path: Path) -> None:
    made = Timeline()
    for index in range(1, 3):
        start = 1000 * index
        made.mlp(start).launch(GEMM, start + 60, start + 110, 5, tid=2)
    made.entries = [entry for entry in made.entries if entry["cat"] != "cpu_op"]
    expected = ["gate_gemm", "activation", "up_gemm", "mul", "down_gemm", "other"]
    assert roles(gpu(made, tmp_path)) == expected


def test_another_process_is_not_part_of_a_call(tmp_path: Path) -> None:
    made = many().api("cudaLaunchKernel", 1040, correlation=77).device("theirs", 1045, 5, 77)
    made.entries[-2]["pid"] = 10
    assert gpu(made, tmp_path) == gpu(many(), tmp_path)


def test_an_annotation_inside_its_like_is_the_same_call(tmp_path: Path) -> None:
    assert gpu(many().call(1010, 50), tmp_path) == gpu(many(), tmp_path)


def test_the_operator_of_a_launch_contains_it(tmp_path: Path) -> None:
    """Not one that ends as the launch begins, nor one that ends before the launch does."""
    made = Timeline()
    for index in range(1, 3):
        start = 1000 * index
        made.call(start, 100).op("aten::linear", start + 1, 50)
        made.op("aten::t", start + 2, 3).op("aten::view", start + 4, 1.5).launch(GEMM, start + 5, start + 60, 5)
    assert [kernel.op for kernel in gpu(made, tmp_path).kernels] == ["aten::linear"]


def test_kernels_are_listed_in_device_order(tmp_path: Path) -> None:
    made = Timeline()
    for index in range(1, 3):
        start = 1000 * index
        made.call(start, 100).launch("launched first", start + 1, start + 50, 5)
        made.launch("runs first", start + 3, start + 10, 5, stream=8)
    assert [kernel.name for kernel in gpu(made, tmp_path).kernels] == ["runs first", "launched first"]


def test_a_graph_replay_is_one_launch_of_many_kernels(tmp_path: Path) -> None:
    made = Timeline()
    for index in range(1, 4):
        start = 1000 * index
        made.call(start, 50).api("cudaGraphLaunch", start + 10, 5, correlation=index)
        for position, name in enumerate(("Memset (Device)", GEMM, GEMM, FUSED, GEMM, SPLIT_K)):
            made.device(name, start + 20 + 10 * position, 5, index)
    found = gpu(made, tmp_path)
    assert roles(found) == ["memset", "gate_gemm", "up_gemm", "act_mul", "down_gemm", "down_gemm"]
    assert (found.launches.kernels, found.launches.memsets) == (5, 1)
    assert found.launches.runtime_launches == {"cudaGraphLaunch": 1}
    assert {kernel.launched_by for kernel in found.kernels} == {"cudaGraphLaunch"}


def test_fills_copies_queries_and_waits_are_counted_apart(tmp_path: Path) -> None:
    made = Timeline()
    for index in range(1, 3):
        start = 1000 * index
        made.call(start, 200)
        made.launch("Memset (Device)", start + 1, start + 10, 1, api="cudaMemsetAsync")
        made.launch("Memcpy DtoD (Device -> Device)", start + 3, start + 12, 1, api="cudaMemcpyAsync")
        made.launch("Memcpy HtoD (Pageable -> Device)", start + 5, start + 14, 1, api="cuMemcpyHtoDAsync_v2")
        made.api("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", start + 7)
        made.api("cudaStreamIsCapturing", start + 8).api("cudaLaunchHostFunc", start + 9)
        for offset, api in enumerate(("cudaLaunchKernelExC", "cuLaunchKernel", "hipExtModuleLaunchKernel")):
            made.launch("a kernel", start + 20 + offset * 2, start + 40 + offset * 10, 3, api=api)
        made.api("cudaStreamSynchronize", start + 70).api("hipDeviceSynchronize", start + 75)
    launches = gpu(made, tmp_path).launches
    assert (launches.kernels, launches.memcpys, launches.memsets) == (3, 2, 1)
    assert (launches.occupancy_queries, launches.syncs) == (1, 2)
    assert launches.runtime_launches == {
        "cudaMemsetAsync": 1,
        "cudaMemcpyAsync": 1,
        "cuMemcpyHtoDAsync_v2": 1,
        "cudaLaunchKernelExC": 1,
        "cuLaunchKernel": 1,
        "hipExtModuleLaunchKernel": 1,
    }


def test_a_driver_call_inside_its_runtime_call_is_one_launch(tmp_path: Path) -> None:
    made = Timeline()
    for index in range(1, 3):
        start = 1000 * index
        made.call(start, 50).api("cudaLaunchKernel", start + 5, 10, correlation=index)
        made.api("cuLaunchKernel", start + 7, 3, correlation=index).device("k", start + 20, 5, index)
    found = gpu(made, tmp_path)
    assert found.launches.kernels == 1
    assert found.launches.runtime_launches == {"cudaLaunchKernel": 1}


MM, ADDMM = "aten::mm", "aten::addmm"
ROLES: dict[str, tuple[tuple[tuple[str, str], ...], list[str]]] = {
    "compile": (
        ((GEMM, MM), (GEMM, MM), (FUSED, FUSED), (GEMM, MM)),
        ["gate_gemm", "up_gemm", "act_mul", "down_gemm"],
    ),
    "ours": (
        ((GEMM, MM), (GEMM, MM), ("act_mul_flat_kernel", "_ActMul"), (GEMM, MM)),
        ["gate_gemm", "up_gemm", "act_mul", "down_gemm"],
    ),
    "packed": (((GEMM, MM), ("act_mul_rows_kernel", "x"), (GEMM, MM)), ["gate_up_gemm", "act_mul", "down_gemm"]),
    "packed eager": (
        ((GEMM, MM), (GELU, "aten::gelu"), (MUL, "aten::mul"), (GEMM, MM)),
        ["gate_up_gemm", "activation", "mul", "down_gemm"],
    ),
    "no gate": (((GEMM, MM), (GELU, "aten::gelu"), (GEMM, MM)), ["other", "other", "other"]),
    "one product": (((GEMM, MM),), ["other"]),
    "four products": (((GEMM, MM),) * 4, ["other"] * 4),
    "copies before": (
        (("Memcpy DtoD (Device -> Device)", ADDMM), (GEMM, ADDMM), (GEMM, ADDMM), (FUSED, FUSED), (GEMM, ADDMM)),
        ["memcpy", "gate_gemm", "up_gemm", "act_mul", "down_gemm"],
    ),
    "work after": (
        ((GEMM, MM), (GEMM, MM), (FUSED, FUSED), (GEMM, MM), (MUL, "aten::mul")),
        ["gate_gemm", "up_gemm", "act_mul", "down_gemm", "other"],
    ),
}


@pytest.mark.parametrize("case", ROLES)
def test_roles_follow_the_order_of_the_products(case: str, tmp_path: Path) -> None:
    kernels, expected = ROLES[case]
    assert roles(gpu(many(kernels), tmp_path)) == expected


def test_helper_kernels_belong_to_their_product(tmp_path: Path) -> None:
    """Split-K reductions, and kernels of no known name that one `aten::mm` launched beside its product."""
    made = Timeline()
    for index in range(1, 3):
        start = 1000 * index
        made.call(start, 200)
        for position, helper in enumerate((SPLIT_K, "unknown_helper", None)):
            at = start + 40 * position
            made.op("aten::mm", at + 2, 20).launch(GEMM, at + 4, at + 20, 5)
            if helper:
                made.launch(helper, at + 10, at + 27, 2)
            if position == 1:
                made.op(FUSED, at + 24, 8).launch(FUSED, at + 26, at + 32, 5, api="cuLaunchKernel")
    found = gpu(made, tmp_path)
    assert roles(found) == ["gate_gemm", "gate_gemm", "up_gemm", "up_gemm", "act_mul", "down_gemm"]


def test_overlap_on_two_streams_is_not_counted_twice(tmp_path: Path) -> None:
    made = Timeline()
    for index in range(1, 3):
        start = 1000 * index
        made.call(start, 50).launch("a", start + 1, start + 10, 10).launch("b", start + 3, start + 15, 10, stream=8)
    found = gpu(made, tmp_path)
    assert found.kernel_us == (15.0, 15.0)


def test_the_order_on_two_streams_may_change(tmp_path: Path) -> None:
    """Calls are compared by launch, so an overlap that ends the other way round is no difference."""
    made = Timeline()
    for index, (first, second) in enumerate(((10, 12), (12, 10), (10, 12)), 1):
        start = 1000 * index
        made.call(start, 50).launch("a", start + 1, start + first, 10)
        made.launch("b", start + 3, start + second, 10, stream=8)
    found = gpu(made, tmp_path)
    assert found.notes == ()
    assert [kernel.name for kernel in found.kernels] == ["a", "b"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))))
def test_the_union_counts_each_instant_once(pairs: list[tuple[int, int]]) -> None:
    intervals = [(start, start + length) for start, length in pairs]
    assert union_ns(intervals) == len({instant for start, end in intervals for instant in range(start, end)})


def test_a_compilation_inside_a_call_is_said(tmp_path: Path) -> None:
    made = many().op("entire_frame_compile", 1001, 1)
    assert gpu(made, tmp_path).faults == ("1 of 3 calls were compiled while they were measured",)


def test_a_region_id_alone_is_no_recompile(tmp_path: Path) -> None:
    made = many().op("Torch-Compiled Region: 0/1", 1001, 1)
    assert gpu(made, tmp_path).notes == ()


def test_no_gpu_event_is_an_error_not_a_zero(tmp_path: Path) -> None:
    made = Timeline().call(0, 100).op("aten::mm", 1, 5)
    with pytest.raises(MeasurementError, match="no GPU events"):
        gpu(made, tmp_path)


def test_no_call_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"no annotation is named 'my\.call'"):
        gpu(many(), tmp_path, call="my.call")


def test_another_annotation_can_delimit_the_call(tmp_path: Path) -> None:
    made = Timeline().mlp(0, name="step").mlp(1000, name="step")
    assert gpu(made, tmp_path, call="step").calls == 2


def test_leaf_operators_take_the_place_of_kernels_on_a_cpu(tmp_path: Path) -> None:
    made = Timeline()
    for index in range(2):
        start = 100 * index
        made.call(start, 90).op("aten::linear", start + 1, 20).op("aten::t", start + 2, 2)
        made.op("aten::addmm", start + 5, 10).op("aten::copy_", start + 6, 2)  # the copy is inside the product
        made.op("aten::empty", start + 22, 1).op("aten::relu", start + 24, 4).op("aten::clamp_min", start + 25, 2)
        made.op("aten::addmm", start + 30, 6).op("aten::mul", start + 40, 4).op("aten::contiguous", start + 45, 5)
        made.op("aten::clone", start + 46, 3).op("aten::copy_", start + 47, 1).op("aten::addmm", start + 60, 5)
    found = analyse(kineto.read(made.write(tmp_path)), device="cpu")
    assert [(kernel.name, kernel.role) for kernel in found.kernels] == [
        ("aten::addmm", "gate_gemm"),
        ("aten::relu", "activation"),
        ("aten::addmm", "up_gemm"),
        ("aten::mul", "mul"),
        ("aten::copy_", "other"),
        ("aten::addmm", "down_gemm"),
    ]
    assert found.launches.kernels == 6
    assert found.launches.runtime_launches == {}
    assert found.kernel_us == (30.0, 30.0)


ODD = st.sampled_from([None, -1, 0, 1.5, "x", "", "12", [], {}, True, 2**70, 1e-9])


@settings(max_examples=rings.examples(150))
@given(st.lists(st.tuples(st.integers(0, 47), st.sampled_from(["ts", "dur", "name", "cat", "tid", "args", "-"]), ODD)))
def test_damaged_entries_are_analysed_or_refused(damage: list[tuple[int, str, Any]]) -> None:
    made = many()
    for index, key, value in damage:
        if key == "-" and len(made.entries) > 1:
            del made.entries[index % len(made.entries)]
        elif key != "-":
            made.entries[index % len(made.entries)][key] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_text(json.dumps({"traceEvents": made.entries}))
        for device in ("cuda", "cpu"):
            with contextlib.suppress(MlpfusionError):
                assert analyse(kineto.read(path), device=device).calls > 0
