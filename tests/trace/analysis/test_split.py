"""Compute, communication, both and idle of a call are what a count of its microseconds says, and add up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.raw import kernel, launched, step, text
from support.timeline import GEMM

from mlpfusion.trace.analysis.summary import read

if TYPE_CHECKING:
    from mlpfusion.records.breakdown import Split

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def split(made: list[Any]) -> Split:
    found = read(text(made)).breakdown
    assert found is not None
    assert found.split is not None
    return found.split


def calls(*inside: tuple[str, int, int, int], count: int = 3) -> list[Any]:
    """Calls of 9000 µs that run pieces of work: name, start, length, stream."""
    made = []
    for call in range(count):
        start = 10_000 * (call + 1)
        made.append(step(call, start, 9000))
        for number, (name, at, length, stream) in enumerate(inside, 1):
            one = launched(name, start + number, start + at, length, 100 * call + number)
            one[1]["tid"] = stream
            made += one
    return made


def test_a_collective_is_exposed_where_nothing_computes() -> None:
    found = split(calls((GEMM, 1000, 1000, 7), (NCCL, 1500, 1500, 20)))
    assert (found.compute_us, found.both_us, found.communication_us, found.idle_us) == (500, 500, 1000, 7000)


def test_without_communication_all_work_is_compute() -> None:
    found = split(calls((GEMM, 1000, 1000, 7), ("Memset (Device)", 3000, 10, 7)))
    assert (found.compute_us, found.both_us, found.communication_us, found.idle_us) == (1010, 0, 0, 7990)


def test_work_of_other_calls_and_orphans_count() -> None:
    made = calls((GEMM, 1000, 1000, 7))
    made += [kernel(NCCL, 20_000 + 5000, 1000, 7777, stream=20)]  # no launch
    found = split(made[: 2 * 3] + made[-1:])  # two calls, the second with the orphan
    assert found.compute_us == 1000
    assert found.communication_us in (0, 1000)
    assert found.compute_us + found.communication_us + found.both_us + found.idle_us == found.length_us


WORK = st.lists(
    st.tuples(st.sampled_from([GEMM, NCCL]), st.integers(100, 8000), st.integers(1, 900), st.integers(7, 10)),
    min_size=1,
    max_size=8,
)


def apart(work: list[tuple[str, int, int, int]]) -> bool:
    """Whether no stream runs two at once, which none does."""
    return all(
        one[3] != two[3] or one[1] + one[2] <= two[1] or two[1] + two[2] <= one[1]
        for at, one in enumerate(work)
        for two in work[:at]
    )


@settings(max_examples=rings.examples(40))
@given(WORK.filter(apart))
def test_every_microsecond_is_in_one_part(work: list[tuple[str, int, int, int]]) -> None:
    found = split(calls(*work))
    computing: set[int] = set()
    talking: set[int] = set()
    for name, at, length, _ in work:
        (talking if name == NCCL else computing).update(range(at, at + length))
    assert found.compute_us == len(computing - talking)
    assert found.communication_us == len(talking - computing)
    assert found.both_us == len(computing & talking)
    total = found.compute_us + found.communication_us + found.both_us + found.idle_us
    assert total == pytest.approx(found.length_us)
