"""Differences of two calls: kernels paired by their place, operators and launches counted, times with bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.kernel_pairs import DOWN, EAGER, FUSED, GATE, UP, changes, kernels
from support.paths import DATA
from support.timeline import GEMM, Timeline

from mlpfusion.records.clocks import Clocks, Samples
from mlpfusion.records.profile import Launches, Row
from mlpfusion.report import diff as diff_report
from mlpfusion.stats import summarise
from mlpfusion.trace.analysis.kernels import analyse_work
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.diff.calls import diff
from mlpfusion.trace.read import kineto, launch_configs

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.trace import Difference, Reading

COMPILED = [(GEMM, GATE), (GEMM, UP), (FUSED, "act_mul"), (GEMM, DOWN)]
CHAIN = (
    "aten::linear → aten::t → aten::transpose → aten::as_strided → aten::matmul → aten::reshape → aten::view → "
    "aten::mm → aten::_unsafe_view"
)


def recorded(name: str) -> Reading:
    return read(DATA / f"{name}.json.gz")


def between(a: str, b: str) -> Difference:
    return diff(recorded(a), recorded(b), labels=(a, b))


# ---- recorded traces -------------------------------------------------------------------------------------------------


def test_eager_and_compile() -> None:
    """Three GEMMs the same, GELU and mul gone, one fused kernel new."""
    found = between("h200_eager", "h200_compile")
    assert changes(found.kernels) == [
        ("same", "memset"),
        ("same", GATE),
        ("gone", "activation"),
        ("same", "memset"),
        ("same", UP),
        ("new", "act_mul"),
        ("gone", "mul"),
        ("same", DOWN),
    ]
    assert found.summary[0] == "the same, name for name: three GEMMs, two memsets"
    assert found.summary[1] == "gone: activation (gelu), mul"
    assert found.summary[2] == f"new: one fused kernel {FUSED} (inductor)"
    assert found.summary[3].startswith(f"operators gone: 3x {CHAIN}; 1x aten::gelu; 1x aten::mul")
    assert "Torch-Compiled Region → Pregraph bytecode" in found.summary[4]
    assert {(change.name, change.a, change.b) for change in found.launches} == {
        ("kernels", 5, 4), ("cudaLaunchKernel", 2, 0), ("cuLaunchKernel", 0, 1),
    }  # fmt: skip
    gone = {change.name for change in found.ops if not change.b}
    assert {"aten::linear", "aten::t", "aten::transpose", "aten::matmul", "aten::gelu", "aten::mul"} <= gone
    assert "aten::mm" not in {change.name for change in found.ops}
    assert next((change.name, change.a, change.b) for change in found.chains) == (CHAIN, 3, 0)


def test_eager_and_compile_take_other_times() -> None:
    host, device = between("h200_eager", "h200_compile").times
    assert (host.clock, device.clock) == ("host_us", "kernel_us")
    assert host.clear
    assert host.difference_us > 0
    assert device.clear
    assert device.low_us is not None
    assert device.high_us is not None
    assert device.low_us <= device.difference_us <= device.high_us < 0
    assert device.a.n == device.b.n == 20
    parts = {change.part: change for change in between("h200_eager", "h200_compile").pre_ops}
    assert parts["dynamo_cache_lookup"].a_us is None
    assert parts["dynamo_cache_lookup"].b_us


def test_two_launches_of_one_name_are_told() -> None:
    def side(name: str) -> Row:
        path = DATA / f"{name}.json.gz"
        found, _ = analyse_work(kineto.read(path), device="cuda", configs=launch_configs.read(path))
        return Row(backend=name, status="ok", kernels=found.kernels)

    found = diff(side("h200_compile"), side("h200_compile_max_autotune"))
    (pair,) = (each for each in found.kernels if each.changes)
    (change,) = pair.changes
    assert (pair.change, pair.role, change.field) == ("same", "act_mul", "launch")
    assert (change.a, change.b) == (
        "24576 blocks of 128 threads, 31 registers",
        "24576 blocks of 512 threads, 16 registers",
    )
    assert f"of one name, launched otherwise: act·mul (launch {change.a} → {change.b})" in found.summary
    assert not any(each.changes for each in diff(side("h200_compile"), side("h200_compile")).kernels)


def test_the_other_way_round_new_is_gone() -> None:
    there, back = between("h200_eager", "h200_compile"), between("h200_compile", "h200_eager")
    opposite = {"same": "same", "gone": "new", "new": "gone"}
    assert sorted((opposite[each.change], each.role) for each in there.kernels) == sorted(changes(back.kernels))
    assert [-change.difference_us for change in there.times] == [change.difference_us for change in back.times]


@pytest.mark.parametrize("name", ["h200_eager", "h200_compile", "h200_eager_training", "cpu_compile"])
def test_a_trace_and_itself(name: str) -> None:
    found = between(name, name)
    assert {each.change for each in found.kernels} == {"same"}
    assert found.ops == found.chains == found.launches == ()
    assert not any(change.clear for change in found.times)
    assert "no clear difference" in found.summary[-1]


def test_other_shapes_change_the_products() -> None:
    found = between("h200_eager", "h200_eager_one_token")
    changed = {each.role: {change.field: (change.a, change.b) for change in each.changes}
               for each in found.kernels if each.change == "changed"}  # fmt: skip
    assert set(changed) == {GATE, UP, DOWN}
    assert changed[GATE]["tile"] == ("128x256x64", "8x64x64")
    assert changed[GATE]["stages"] == ("4", "16")
    assert changed[DOWN]["split_k"] == (None, "True")
    assert [each.role for each in found.kernels if each.change == "new"] == [DOWN]  # its split-K reduction
    assert all(change.low_us is None and not change.clear for change in found.times)  # three calls


def test_packed_joins_gate_and_up() -> None:
    found = changes(between("h200_eager", "h200_packed").kernels)
    assert ("new", "gate_up_gemm") in found
    assert ("gone", GATE) in found
    assert ("gone", UP) in found
    assert ("same", DOWN) in found


# ---- what cannot be compared -----------------------------------------------------------------------------------------


def test_an_incomplete_side_has_no_times() -> None:
    whole = recorded("h200_eager")
    broken = msgspec.structs.replace(recorded("h200_compile"), incomplete="2 launches have no device event")
    said = "b: its times are not compared, since it is incomplete: 2 launches have no device event"
    found = diff(whole, broken)
    assert found.times == found.pre_ops == ()
    assert found.summary[0] == found.reasons[0] == said
    assert {pair.difference_us for pair in found.kernels} == {None}
    assert {pair.b.time_us for pair in found.kernels if pair.b} == {None}
    assert all(pair.a.time_us for pair in found.kernels if pair.a)
    page = diff_report.render(found)
    assert said in page.splitlines()[:8]  # before all tables
    assert page.count(said) == 1
    assert diff(broken, whole).summary[0] == "a" + said[1:]


def test_a_cpu_and_a_gpu() -> None:
    found = between("cpu_eager", "h200_eager")
    said = "a ran on CPU, b on GPU: kernel times, launches and the time before the first one are not compared"
    assert found.summary[0] == found.reasons[0] == said
    assert [change.clock for change in found.times] == ["host_us"]
    assert found.launches == found.pre_ops == ()
    assert {pair.difference_us for pair in found.kernels} == {None}
    assert between("h200_eager", "cpu_eager").summary[0].startswith("a ran on GPU, b on CPU: ")
    assert not any("ran on" in line for line in between("cpu_eager", "cpu_compile").summary)


def test_a_row_of_a_cpu() -> None:
    row_of_cpu = row("eager", [("aten::mm", GATE), ("cpp_fused_gelu_0", "activation")], (1.0, 2.0))
    assert diff(row_of_cpu, recorded("h200_eager")).summary[0].startswith("a ran on CPU, b on GPU: ")
    assert not any("ran on" in line for line in diff(row_of_cpu, recorded("cpu_eager")).summary)


def test_kernel_times_come_with_their_spread(tmp_path: Path) -> None:
    made: Any = Timeline()
    one = read(made.mlp(1000).write(tmp_path))
    found = diff_report.render(diff(one, one))
    assert found.count("5.00 (one call)") == 2 * 5
    made.mlp(2000)
    assert "5.00 [5.00–5.00]" in diff_report.render(diff(one, read(made.write(tmp_path))))
    few = diff_report.render(diff(row("a", EAGER, (1.0,)), row("b", EAGER, (2.0,))))
    assert "10.0" not in few.split("Kernels")[1].split("Times")[0]


# ---- rows of a result file -------------------------------------------------------------------------------------------


def row(name: str, given: list[tuple[str, str]], samples: tuple[float, ...]) -> Row:
    clock = summarise(Samples(backend=name, clock="event_us", l2="cold", values=samples))
    launches = Launches(kernels=len(given), memcpys=0, memsets=0, runtime_launches={}, occupancy_queries=0, syncs=0)
    return Row(
        backend=name, status="ok", kernels=tuple(kernels(given)), launches=launches, clocks=Clocks(event_us=clock)
    )


def test_rows_of_a_result_file() -> None:
    steady = tuple(100.0 + number % 5 for number in range(20))
    found = diff(row("eager", EAGER, steady), row("compile", COMPILED, tuple(value - 20 for value in steady)))
    assert (found.a, found.b) == ("eager", "compile")
    assert changes(found.kernels) == [
        ("same", GATE), ("gone", "activation"), ("same", UP), ("new", "act_mul"), ("gone", "mul"), ("same", DOWN),
    ]  # fmt: skip
    (time,) = found.times
    assert (time.clock, time.difference_us, time.clear) == ("event_us", -20, True)
    assert found.reasons == ("operators are not compared: eager and compile have no timeline of host events",)
    assert found.ops == found.chains == ()


def test_few_samples_have_no_bounds() -> None:
    (time,) = diff(row("a", EAGER, (1.0, 2.0, 3.0)), row("b", EAGER, (7.0, 8.0, 9.0))).times
    assert (time.low_us, time.high_us, time.clear) == (None, None, False)


def test_bounds_that_touch_zero_are_not_clear() -> None:
    low, high = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (6.0, 7.0, 8.0, 9.0, 10.0, 11.0)
    for a, b, bounds in ((low, high, (0, 10)), (high, low, (-10, 0))):
        (time,) = diff(row("a", EAGER, a), row("b", EAGER, b)).times
        assert (time.low_us, time.high_us, time.clear) == (*bounds, False)
    apart = tuple(value + 0.5 for value in high)
    assert [diff(row("a", EAGER, low), row("b", EAGER, apart)).times[0].clear] == [True]
    assert [diff(row("a", EAGER, apart), row("b", EAGER, low)).times[0].clear] == [True]


def test_a_trace_and_a_row(tmp_path: Path) -> None:
    made: Any = Timeline()
    for index in range(3):
        made.mlp(1000 * (index + 1))
    found = diff(read(made.write(tmp_path)), row("compile", COMPILED, (1.0,)), labels=("before", "after"))
    assert (found.a, found.b) == ("before", "after")
    assert found.times == ()  # host_us is the profiler's, event_us is not
    assert len(found.reasons) == 1
    assert ("new", "act_mul") in changes(found.kernels)
