"""Device events that cannot be as they are written: set apart, repaired where that is certain, and said."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.raw import api, event, kernel, launched, step, text

from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings

GEMM = "Cijk_Alik_Bljk_BBS_BH_MT256x256x64"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def steps(count: int = 4, *, by: str = "hipLaunchKernel", pitch: int = 100, runs: int = 90) -> list[Any]:
    """Steps of 3000, each with 10 kernels of 90, one every 100, launched 20 apart."""
    made = []
    for index in range(count):
        start = 100_000 + 3000 * index
        made.append(step(index, start, 2900))
        for one in range(10):
            number = 100 * index + one + 1
            made += launched(GEMM, start + 20 * one + 5, start + 300 + pitch * one, runs, number, by=by)
    return made


def kernels(made: list[Any]) -> list[Any]:
    return [one for one in made if one["cat"] == "kernel"]


def of(made: list[Any], **options: Any) -> Any:
    return read(text(made, **options))


# ---- durations


@pytest.mark.parametrize("length", [3_400_000, 5_000, 650])
@pytest.mark.parametrize("gpu", ["AMD Instinct MI355X", "NVIDIA A100-SXM4-80GB"])
def test_a_duration_past_the_next_of_its_stream_is_in_no_sum(length: int, gpu: str) -> None:
    made = steps()
    kernels(made)[13]["dur"] = length
    found = of(made, gpu=gpu)
    assert (found.integrity.impossible, found.integrity.damaged) == (1, 1)
    assert set(found.analysis.kernel_us) == {900.0}
    assert [(odd.index, odd.damaged) for odd in found.odd_calls] == [(1, 1)]
    told = {one.id: one for one in findings(found)}
    assert "kernel_varies" not in told
    assert f"{GEMM}, {length} µs" in told["damaged_events"].seen
    assert found.device_use.length_us == 2900


def test_in_the_only_call_the_other_kernels_keep_their_times() -> None:
    made = steps(1)
    kernels(made)[4]["dur"] = 40_000
    found = of(made)
    times = [one.time_us for one in found.analysis.kernels]
    assert times.count(None) == 1
    assert [time for time in times if time is not None] == [90.0] * 9
    assert found.analysis.kernel_us == (810.0,)
    assert [spread is None for spread in found.kernel_spread] == [time is None for time in times]


@pytest.mark.parametrize("by", ["cuLaunchKernelEx", "cudaLaunchKernelExC"])
def test_programmatic_launches_overlap_and_count_as_a_union(by: str) -> None:
    made = steps(by=by, pitch=70)
    found = of(made, gpu="NVIDIA B200")
    assert (found.integrity.damaged, found.integrity.crowded) == (0, 0)
    assert set(found.analysis.kernel_us) == {70.0 * 9 + 90}


def test_a_graph_runs_several_at_once_on_the_stream_of_its_launch() -> None:
    made = []
    for index in range(3):
        start = 100_000 + 3000 * index
        made += [step(index, start, 2900), api("cudaGraphLaunch", start + 10, 20, index + 1)]
        made += [kernel("long", start + 100, 500, index + 1), kernel("short", start + 150, 20, index + 1)]
    found = of(made)
    assert found.integrity.damaged == 0
    assert set(found.analysis.kernel_us) == {500.0}


def test_a_queue_of_several_streams_is_no_damage() -> None:
    """Half of its kernels overlap the next: that is a habit of the place, not an accident of a kernel."""
    found = of(steps(pitch=60))
    assert (found.integrity.damaged, found.integrity.crowded) == (0, 36)
    assert any("36 device events overlapping the next of its stream" in note for note in found.notes)


@pytest.mark.parametrize("length", [0, -5, -1000])
def test_a_kernel_without_a_duration_stays_in_its_call_but_in_no_sum(length: int) -> None:
    made = steps()
    kernels(made)[13]["dur"] = length
    found = of(made)
    assert found.integrity.impossible == 1
    assert [(odd.index, odd.damaged) for odd in found.odd_calls] == [(1, 1)]
    assert [one.time_us for one in found.analysis.kernels] == [90.0] * 10


def test_zero_is_a_time_where_clocks_write_whole_microseconds() -> None:
    made = steps(runs=1)
    for one in kernels(made)[::3]:
        one["dur"] = 0
    found = of(made)
    assert (found.integrity.damaged, found.integrity.zero) == (0, 14)
    assert found.analysis.calls >= 1


@pytest.mark.parametrize("start", [0, 1, 500])
@pytest.mark.parametrize("length", [0, 40])
@pytest.mark.parametrize("launch", [True, False])
def test_a_kernel_far_before_all_else_is_in_no_call(start: int, length: int, launch: bool) -> None:
    made = [*steps(), kernel(GEMM, start, length, 9000)]
    if launch:  # whose times were not set either
        made.append(api("hipLaunchKernel", start, 0, 9000))
    found = of(made)
    assert found.integrity.damaged == 1
    assert (found.analysis.calls, found.analysis.launches.kernels, found.incomplete) == (4, 10, None)


def test_work_before_a_long_pause_is_no_damage() -> None:
    """A copy to the device, then a second without anything, as when a model is loaded."""
    made = [*launched("k", 100, 110, 30, 9000), *steps()]
    for one in made[2:]:
        one["ts"] += 1_000_000
    found = of(made)
    assert (found.integrity.damaged, found.analysis.calls) == (0, 4)


@given(st.lists(st.integers(1, 95), min_size=20, max_size=60), st.integers(0, 3))
def test_kernels_one_after_the_other_are_never_damaged(lengths: list[int], streams: int) -> None:
    made = [step(0, 1000, 100 * len(lengths) + 200)]
    for index, length in enumerate(lengths):
        at = 1000 + 100 * index
        made += [api("cudaLaunchKernel", at, 3, index + 1)]
        made += [kernel(f"k{index % 3}", at + 4, length, index + 1, stream=7 + index % (streams + 1))]
    found = of(made)
    assert (found.integrity.damaged, found.integrity.crowded) == (0, 0)
    assert found.analysis.kernel_us == (float(sum(lengths)),)


# ---- correlations


def reducing(count: int = 3, *, named: bool = True, **change: Any) -> list[Any]:
    """Steps of a product of 200 and an all-reduce of 400 on another stream, whose correlation is 0."""
    made = []
    for index in range(count):
        start, number = 10_000 + 1000 * index, 10 * index + 1
        made.append(step(index, start, 900))
        made += launched(GEMM, start + 20, start + 30, 200, number)
        if named:
            made.append(event("cpu_op", "c10d::allreduce_", start + 98, 30))
        made.append(api("cudaLaunchKernelExC", start + 100, 9, number + 1))
        made.append({**kernel(NCCL, start + 240, 400, 0, stream=20), **change})
    return made


@pytest.mark.parametrize("named", [True, False])
def test_collectives_without_a_correlation_are_matched_by_name_order_and_stream(named: bool) -> None:
    made = reducing(named=named)
    found = of(made)
    assert (found.integrity.loose, found.integrity.matched, found.integrity.orphans) == (3, 3, 0)
    assert any("3 of 3 kernels" in note for note in found.notes)
    by_hand = median(one["dur"] for one in made if one["name"] == NCCL)
    assert [one.time_us for one in found.analysis.kernels] == [200.0, by_hand]
    assert found.analysis.kernels[1].op == ("c10d::allreduce_" if named else None)
    assert found.incomplete is None


def test_a_collective_that_was_launched_before_recording_is_not_matched() -> None:
    made = [*reducing(), kernel(NCCL, 9_500, 300, 0, stream=20)]
    found = of(made)
    assert (found.integrity.matched, found.integrity.orphans) == (3, 1)


def test_what_is_not_certain_is_not_matched() -> None:
    made = reducing()
    del made[-1]  # a launch more than kernels
    found = of(made)
    assert (found.integrity.matched, found.integrity.orphans) == (0, 2)
    spread = reducing()
    spread[-1]["tid"] = 21  # two streams
    assert of(spread).integrity.matched == 0
    early = reducing()
    kernels(early)[3]["ts"] = 11_050  # before its launch
    assert of(early).integrity.matched == 0


def test_a_kernel_that_bears_the_correlation_of_another_is_given_its_own() -> None:
    made = steps(by="cudaLaunchKernel")
    swapped = kernels(made)[13]
    assert swapped["args"]["correlation"] == 104
    swapped["args"]["correlation"] = 103
    found = of(made)
    assert (found.analysis.calls, found.integrity.matched, found.integrity.damaged) == (4, 1, 0)
    assert found.analysis.launches.kernels == 10


def test_a_kernel_that_bears_the_correlation_of_another_and_has_no_launch_is_in_no_call() -> None:
    made = [*steps(by="cudaLaunchKernel"), kernel(GEMM, 105_000, 50, 103)]
    found = of(made)
    assert (found.analysis.calls, found.analysis.launches.kernels, found.integrity.damaged) == (4, 10, 1)


def test_two_ranks_launch_one_kernel_each_under_one_correlation() -> None:
    made = steps(by="cudaLaunchKernel")
    theirs = [
        {**one, "pid": 1 if one["cat"] == "kernel" else 10} for one in steps(by="cudaLaunchKernel") if one["args"]
    ]
    assert of([*made, *theirs]).integrity.damaged == 0


def ending(length: float, *, behind: bool = False) -> list[Any]:
    """Steps of three kernels of 250, the very last of which takes so long; work on another stream may follow it."""
    made: list[Any] = []
    for index in range(4):
        start = 10_000 * (index + 1)
        made.append(step(index, start, 1000))
        for one in range(3):
            number = 3 * index + one + 1
            made += launched(
                "k", start + 50 + 300 * one, start + 60 + 300 * one, 250 if number < 12 else length, number
            )
    return [*made, kernel("other", 10**8, 10, 999, stream=8)] if behind else made


@pytest.mark.parametrize("length", [3_400_000, 10**9])
def test_the_last_of_a_stream_cannot_take_a_hundred_times_what_all_others_take(length: float) -> None:
    reading = read(text(ending(length)))
    assert reading.integrity.impossible == 1
    assert max(spread.high for spread in reading.kernel_spread if spread is not None) == 250
    assert all(one.share <= 1 for one in findings(reading))


@pytest.mark.parametrize(("length", "behind"), [(250, False), (2500, False), (24_000, False), (3_400_000, True)])
def test_a_long_last_kernel_is_left_as_it_is(length: float, behind: bool) -> None:
    """Ten times as long may be true, and so is a long one beside which others ran."""
    assert read(text(ending(length, behind=behind))).integrity.impossible == 0
