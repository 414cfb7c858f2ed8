"""Collectives of a call: time, exposed part and bandwidth are what a sum over the raw events by hand gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.raw import api, event, kernel, launched, step, text
from support.timeline import GEMM

from mlpfusion.trace.analysis.summary import read

if TYPE_CHECKING:
    from mlpfusion.records.breakdown import Breakdown

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GENERIC = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
ELEMENTS, RANKS = 1_000_000, 8
ARGS = {"Collective name": "allreduce", "In msg nelems": ELEMENTS, "Out msg nelems": ELEMENTS, "dtype": "BFloat16",
        "Group size": RANKS, "Process Group Name": "dp", "Seq": 3}  # fmt: skip


def found(made: list[Any]) -> Breakdown:
    breakdown = read(text(made)).breakdown
    assert breakdown is not None
    return breakdown


def steps(*collectives: tuple[int, int], compute: tuple[int, int] = (1000, 1000), args: str = "operator", **change: Any
          ) -> list[Any]:  # fmt: skip
    """Three steps of 9000: a product, and all-reduces of a start and a length, whose arguments the one or other has."""
    made = []
    for call in range(3):
        start = 10_000 * (call + 1)
        made.append(step(call, start, 9000))
        made += launched(GEMM, start + 1, start + compute[0], compute[1], 100 * call + 1)
        for number, (at, length) in enumerate(collectives, 2):
            identity, told = 100 * call + number, {**ARGS, "Seq": 10 * call + number, **change}
            launches = start + 10 * number
            made.append(event("cpu_op", "record_param_comms", launches, 8, **(told if args == "operator" else {})))
            made.append(api("cudaLaunchKernelExC", launches + 2, 4, identity))
            one = kernel(NCCL, start + at, length, identity, stream=20)
            one["args"].update(told if args == "kernel" else {})
            made.append(one)
    return made


@pytest.mark.parametrize("args", ["operator", "kernel"])
def test_bytes_and_bus_bandwidth_come_from_the_arguments(args: str) -> None:
    (one,) = found(steps((1500, 1000), args=args)).collectives
    assert (one.operation, one.count, one.us, one.exposed_us) == ("all_reduce", 1, 1000, 500)
    assert (one.dtype, one.group, one.group_size, one.bytes) == ("bfloat16", "dp", RANKS, 2 * ELEMENTS)
    by_hand = 2 * (RANKS - 1) / RANKS * 2 * ELEMENTS / 1000e-6 / 1e9
    assert one.bus_gb_s == pytest.approx(by_hand)


def test_without_arguments_the_name_says_the_operation_and_no_bandwidth_is_given() -> None:
    (one,) = found(steps((1500, 1000), args="none")).collectives
    assert (one.operation, one.dtype, one.bytes, one.bus_gb_s) == ("all_reduce", "bfloat16", None, None)


def test_a_kernel_for_every_collective_is_told_by_its_operator() -> None:
    made = steps((1500, 1000), args="none")
    for one in made:
        one["name"] = {NCCL: GENERIC, "record_param_comms": "c10d::allreduce_"}.get(one["name"], one["name"])
    assert [one.operation for one in found(made).collectives] == ["all_reduce"]


@pytest.mark.parametrize("args", ["operator", "kernel"])
def test_one_operator_that_launched_several_kernels_tells_no_ones_size(args: str) -> None:
    made = steps((1500, 100), args=args)
    for call in range(3):
        start, identity = 10_000 * (call + 1), 100 * call + 9
        made += [
            api("cudaLaunchKernelExC", start + 27, 1, identity),
            kernel(NCCL, start + 3000, 50, identity, stream=20),
        ]
        if args == "kernel":
            made.append(event("cpu_op", "record_param_comms", start + 20, 8, **ARGS))
            made[-2]["args"].update(ARGS)
    (one,) = found(made).collectives
    assert (one.count, one.us, one.bytes, one.bus_gb_s) == (2, 150, None, None)


@pytest.mark.parametrize("sequence", [True, False])
def test_each_collective_has_a_key_that_other_ranks_share(sequence: bool) -> None:
    change = {} if sequence else {"Seq": None}
    runs = found(steps((1500, 100), (4000, 200), **change)).collective_runs
    assert len({run.key for run in runs}) == len(runs) == 6
    assert runs[0].key == ("dp:2" if sequence else "all_reduce#0")
    assert [(run.call, run.start_ns, run.us, run.exposed_us) for run in runs[:2]] == [
        (0, 11_500_000, 100, 0),
        (0, 14_000_000, 200, 200),
    ]


def test_a_call_without_communication_has_none() -> None:
    assert found(steps()).collectives == ()


SPANS = st.lists(st.integers(1, 900), min_size=1, max_size=6)


@settings(max_examples=rings.examples(30))
@given(SPANS, st.integers(100, 6000), st.integers(1, 2500))
def test_the_exposed_part_is_what_no_computing_microsecond_covers(lengths: list[int], at: int, runs: int) -> None:
    placed = [(500 + 1000 * number, length) for number, length in enumerate(lengths)]
    (one,) = found(steps(*placed, compute=(at, runs))).collectives
    computing = set(range(at, at + runs))
    exposed = [len(set(range(start, start + length)) - computing) for start, length in placed]
    assert one.us == sum(lengths)
    assert one.exposed_us == sum(exposed)
    assert one.count == len(lengths)
