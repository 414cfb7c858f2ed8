"""The split of host time before and between launches: every nanosecond has one owner, in every spelling of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import DATA
from support.timeline import GEMM, Timeline

from mlpfusion.records.profile import PreOpParts
from mlpfusion.trace.analysis.kernels import analyse
from mlpfusion.trace.analysis.pre_ops import owned, part_of
from mlpfusion.trace.read import kineto
from mlpfusion.trace.read.kineto import Event

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.profile import PreOps

PARTS = PreOpParts.__struct_fields__


def pre_ops(made: Any, folder: Path) -> PreOps:
    return analyse(kineto.read(made.write(folder)), device="cuda").pre_ops


def shown(parts: PreOpParts) -> dict[str, float]:
    """The parts that are neither absent nor zero."""
    return {name: value for name in PARTS if (value := getattr(parts, name))}


def total(parts: PreOpParts) -> int:
    """The sum of the parts in nanoseconds."""
    return sum(round(value * 1000) for name in PARTS if (value := getattr(parts, name)) is not None)


def compiled(made: Any, start: float, extra: float = 0) -> Any:
    """A compiled call: siblings inside the region, a product, a Triton kernel, a product."""
    made.call(start, 200)
    made.op("TorchDynamo Cache Lookup", start + 3, 10)
    made.op("Torch-Compiled Region: 0/1", start + 15, 150)
    made.op("Pregraph bytecode", start + 20, 4)
    made.op("AOTDispatcher Runtime Wrapper Prologue", start + 26, 5)
    at = start + extra
    made.op("CompiledFunction", at + 35, 120)
    made.add("user_annotation", "## Call CompiledFxGraph fab ##", at + 38, 110)
    made.op("aten::mm", at + 50, 20).launch("Memset (Device)", at + 57, at + 300, 1, api="cudaMemsetAsync")
    made.launch(GEMM, at + 62, at + 302, 5, api="cuLaunchKernelEx")
    made.op("triton_poi_fused_gelu_mul_0", at + 80, 12)
    made.launch("triton_poi_fused_gelu_mul_0", at + 86, at + 310, 5, api="cuLaunchKernel")
    return made.op("aten::mm", at + 100, 20).launch(GEMM, at + 110, at + 320, 5, api="cuLaunchKernelEx")


def test_each_part_of_a_compiled_call(tmp_path: Path) -> None:
    found = pre_ops(compiled(Timeline(), 1000), tmp_path)
    assert (found.n, found.first_launch, found.host_us) == (1, "cudaMemsetAsync", 200.0)
    assert (found.time_to_first_launch, found.time_to_first_kernel) == (57.0, 62.0)
    assert shown(found) == {
        "dynamo_cache_lookup": 10.0,
        "compiled_region_self": 11.0,  # 15-20, 24-26, 31-35
        "pregraph": 4.0,
        "aot_prologue": 5.0,
        "autograd_function": 3.0,
        "compiled_graph_entry": 12.0,
        "dispatch": 7.0,
        "unattributed": 5.0,  # 0-3, 13-15
    }
    assert (found.triton_launcher, found.runtime) == (0.0, 0.0)  # such events exist, later
    assert found.between_launches is not None
    assert shown(found.between_launches) == {
        "runtime": 3.0,
        "dispatch": 21.0,  # 58-62, 63-70, 100-110
        "compiled_graph_entry": 18.0,  # 70-80, 92-100
        "triton_launcher": 11.0,  # 80-86, 87-92
    }
    assert total(found) == 57_000
    assert total(found.between_launches) == 53_000


def test_an_eager_call_has_no_compiled_parts(tmp_path: Path) -> None:
    found = pre_ops(Timeline().mlp(1000), tmp_path)
    absent = [name for name in PARTS if getattr(found, name) is None]
    assert absent == [
        "dynamo_cache_lookup", "compiled_region_self", "pregraph", "aot_prologue", "compiled_graph_entry",
        "autograd_function", "triton_launcher",
    ]  # fmt: skip
    assert shown(found) == {"dispatch": 3.0, "unattributed": 2.0}


def test_the_median_call_is_reported_not_an_average(tmp_path: Path) -> None:
    made = Timeline()
    for index, extra in enumerate((40, 1, 7, 2)):
        compiled(made, 1000 * (index + 1), extra)
    found = pre_ops(made, tmp_path)
    assert found.n == 4
    assert found.time_to_first_launch == 59.0  # the lower of the two in the middle
    assert total(found) == 59_000


SPELLINGS = {
    ("cpu_op", "TorchDynamo Cache Lookup"): "dynamo_cache_lookup",
    ("cpu_op", "Torch-Compiled Region"): "compiled_region_self",
    ("cpu_op", "Torch-Compiled Region: 12/3"): "compiled_region_self",
    ("user_annotation", "Torch-Compiled Region: 0/0"): "compiled_region_self",
    ("cpu_op", "Pregraph bytecode"): "pregraph",
    ("cpu_op", "AOTDispatcher Runtime Wrapper Prologue"): "aot_prologue",
    ("user_annotation", "## Call CompiledFxGraph fab12 ##"): "compiled_graph_entry",
    ("cpu_op", "## Call CompiledFxGraph fab12 ##"): "compiled_graph_entry",
    ("cpu_op", "LigerGELUMulFunction"): "autograd_function",
    ("cpu_op", "_ActMul"): "autograd_function",
    ("cpu_op", "CompiledFunction"): "autograd_function",
    ("cpu_op", "CompiledFunctionBackward"): "autograd_function",
    ("cpu_op", "autograd::engine::evaluate_function: MmBackward0"): "autograd_function",
    ("cpu_op", "torch::autograd::AccumulateGrad"): "autograd_function",
    ("cpu_op", "triton_poi_fused_gelu_mul_0"): "triton_launcher",
    ("cpu_op", "aten::mm"): "dispatch",
    ("cpu_op", "mlpfusion_kernels_1a2b::act_mul"): "dispatch",
    ("cpu_op", "detach"): "dispatch",
    ("cuda_runtime", "cudaLaunchKernel"): "runtime",
    ("cuda_driver", "cuLaunchKernelEx"): "runtime",
    ("user_annotation", "mlpfusion.call"): "unattributed",
    ("user_annotation", "somebody's block"): "unattributed",
    ("overhead", "Lazy Function Loading"): "unattributed",
}


@pytest.mark.parametrize(("category", "name"), SPELLINGS)
def test_spellings(category: str, name: str, tmp_path: Path) -> None:
    event = kineto.read(Timeline().add(category, name, 0, 1).write(tmp_path)).events[0]
    assert part_of(event) == SPELLINGS[category, name]


def test_python_frames_own_nothing(tmp_path: Path) -> None:
    made = Timeline().mlp(1000)
    plain = pre_ops(made, tmp_path)
    made.add("python_function", "nn/modules/module.py(1): forward", 1001, 80)
    assert pre_ops(made, tmp_path) == plain


def test_other_threads_own_nothing_of_the_callers_time(tmp_path: Path) -> None:
    made = Timeline().mlp(1000)
    plain = pre_ops(made, tmp_path)
    made.op("aten::sort", 1000, 90, tid=5)
    assert pre_ops(made, tmp_path) == plain


def test_the_time_before_backward_belongs_to_the_thread_that_was_busy(tmp_path: Path) -> None:
    made = Timeline().call(0, 200).op("aten::mm", 10, 30).launch(GEMM, 20, 300, 5)
    made.op("CompiledFunctionBackward", 60, 50, tid=2).launch(GEMM, 80, 310, 5, tid=2)
    found = pre_ops(made, tmp_path)
    assert found.between_launches is not None
    # To 80: 1 the launch, 19 the rest of aten::mm, 20 nothing but the call, 20 the autograd thread.
    assert shown(found.between_launches) == {
        "runtime": 1.0, "dispatch": 19.0, "unattributed": 20.0, "autograd_function": 20.0,
    }  # fmt: skip


def test_a_call_without_a_launch_has_no_time_to_it(tmp_path: Path) -> None:
    made = Timeline().call(0, 50).op("aten::t", 1, 2).launch(GEMM, 100, 110, 5)
    found = pre_ops(made, tmp_path)
    assert found.time_to_first_launch is None
    assert found.host_us == 50.0


NAMES = ("aten::mm", "TorchDynamo Cache Lookup", "Torch-Compiled Region: 0/0", "CompiledFunction", "triton_poi_fused_0")


@st.composite
def nested(draw: st.DrawFn, start: int = 0, end: int = 1000, depth: int = 0) -> list[Event]:
    """Events of one thread, properly nested, by start."""
    events: list[Event] = []
    now = start
    while now < end and depth < 4 and draw(st.booleans()):
        begin = draw(st.integers(now, end))
        stop = draw(st.integers(begin, end))
        name = draw(st.sampled_from(NAMES))
        events.append(Event(name=name, category="op", start_ns=begin, duration_ns=stop - begin, pid=1, tid=1))
        events += draw(nested(begin, stop, depth + 1))
        now = stop
    return events


@given(nested(), st.integers(0, 1000), st.integers(0, 1000))
def test_nested_events_share_out_every_nanosecond(events: list[Event], first: int, second: int) -> None:
    start, end = sorted((first, second))
    found = owned(events, start, end)
    assert sum(found.values()) == end - start
    assert all(value >= 0 for value in found.values())
    expected = dict.fromkeys(found, 0)
    for instant in range(start, end):
        inside = [event for event in events if event.start_ns <= instant < event.end_ns]
        part = part_of(inside[-1]) if inside else "unattributed"
        expected[part] = expected.get(part, 0) + 1
    assert {part: value for part, value in found.items() if value} == {k: v for k, v in expected.items() if v}


intervals = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 60), st.sampled_from(NAMES)), max_size=12)


@given(intervals, intervals, st.integers(0, 100), st.integers(0, 100))
def test_overlapping_events_share_it_out_too(
    one: list[tuple[int, int, str]], two: list[tuple[int, int, str]], first: int, second: int
) -> None:
    threads = []
    for drawn in (one, two):
        events = [
            Event(name=name, category="op", start_ns=start, duration_ns=length, pid=1, tid=1)
            for start, length, name in drawn
        ]
        threads.append(sorted(events, key=lambda event: (event.start_ns, -event.duration_ns)))
    start, end = sorted((first, second))
    found = owned(threads[0], start, end, threads[1])
    assert sum(found.values()) == end - start
    idle = sum(
        not any(event.start_ns <= instant < event.end_ns for thread in threads for event in thread)
        for instant in range(start, end)
    )
    assert found["unattributed"] == idle


@pytest.mark.parametrize(
    "path", [*sorted((DATA).glob("h200_*.json.gz")), *sorted((DATA).glob("cpu_*.json.gz"))],
    ids=lambda path: path.name,
)  # fmt: skip
def test_recorded_parts_sum_to_the_time_to_the_first_launch(path: Path) -> None:
    on_cpu = path.name.startswith("cpu")
    found = analyse(kineto.read(path), device="cpu" if on_cpu else "cuda").pre_ops
    assert found.time_to_first_launch is not None
    assert total(found) == round(found.time_to_first_launch * 1000)
    assert (found.between_launches is None) == on_cpu
    is_compiled = "compile" in path.name
    assert bool(found.dynamo_cache_lookup) == bool(found.compiled_graph_entry) == is_compiled
    assert (found.dynamo_cache_lookup is None) == (not is_compiled)


def test_recorded_compile_has_every_part() -> None:
    found = analyse(kineto.read(DATA / "h200_compile.json.gz"), device="cuda").pre_ops
    assert (found.n, found.first_launch) == (20, "cudaMemsetAsync")
    assert {name for name in PARTS if getattr(found, name) is None} == {"autograd_function"}
    assert found.between_launches is not None
    assert found.between_launches.triton_launcher
