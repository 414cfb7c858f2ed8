"""trace.job.arrivals: who is the shortest time in a collective arrived last, whatever the clocks of the hosts say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs_made import rank_trace

from mlpfusion.trace.analysis.summary import with_calls
from mlpfusion.trace.job.arrivals import arrivals, lateness
from mlpfusion.trace.read import kineto


def of(*args: Any, **options: Any) -> Any:
    group = options.pop("group", None)
    document = rank_trace(*args, **options)
    for number, entry in enumerate(document["traceEvents"]):
        if group is not None and entry["name"].startswith("nccl"):
            told = {"Collective name": "allreduce", "Process Group Name": group, "Group size": 2, "Seq": number}
            entry["args"].update(told, dtype="BFloat16", **{"In msg nelems": 64, "Out msg nelems": 64})
    reading, calls = with_calls(kineto.read(json.dumps(document).encode()))
    assert reading.breakdown is not None
    return arrivals(reading.breakdown.collective_runs, calls)


def test_the_durations_are_those_of_the_file() -> None:
    document = rank_trace([40, 60.5], steps=2)
    found = of([40, 60.5], steps=2)
    raw = [entry["dur"] for entry in document["traceEvents"] if entry["name"].startswith("nccl")]
    assert {call: list(times) for (call, _), times in found.items()} == {
        "ProfilerStep#5": raw[:2],
        "ProfilerStep#6": raw[2:],
    }


@given(
    st.lists(st.lists(st.integers(1, 80), min_size=3, max_size=3), min_size=2, max_size=5),
    st.lists(st.integers(0, 10**6), min_size=5, max_size=5),
)
def test_the_shortest_arrived_last(durations: list[list[int]], clocks: list[int]) -> None:
    found, other = lateness(
        [of(times, product=50.0, base=1000.0 + clocks[rank]) for rank, times in enumerate(durations)]
    )
    assert other == []
    longest = [max(column) for column in zip(*durations, strict=True)]
    shortest = [min(column) for column in zip(*durations, strict=True)]
    for times, late in zip(durations, found, strict=True):
        assert late is not None
        assert late.us == pytest.approx(sum(longest) - sum(times))
        assert late.of == 9
    apart = [high - low for high, low in zip(longest, shortest, strict=True) if high - low > 5]
    assert sum(late.last for late in found if late) == 3 * len(apart)
    assert sum(late.held_us for late in found if late) == pytest.approx(sum(apart))


def test_ranks_that_ran_other_collectives_are_not_compared() -> None:
    gather = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    found, other = lateness([of([40, 60]), of([20, 60]), of([40]), of([40, 60], collective=gather)])
    assert [late is not None for late in found] == [True, True, False, False]
    assert other == [2]


def test_steps_are_matched_by_their_numbers() -> None:
    found, _ = lateness([of([40], first_step=5), of([30], first_step=7)])
    assert [(late.us, late.of) for late in found if late] == [(0, 1), (10, 1)]  # step 7 alone is in both
    assert lateness([of([40], first_step=5), of([30], first_step=9)])[0] == [None, None]


def test_one_rank_or_none_is_not_late() -> None:
    assert lateness([]) == ([], [])
    assert lateness([of([40])]) == ([None], [])
    assert lateness([{}, {}]) == ([None, None], [])


@pytest.mark.parametrize("name", ["SendRecv", "Broadcast_RING_LL", "Reduce_Sum_f32_RING_LL"])
def test_what_does_not_end_for_all_at_once_is_left_out(name: str) -> None:
    assert of([40], collective=f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)") == {}


def test_groups_are_compared_within_themselves() -> None:
    """Two pairs of ranks: the second pair is slower, but neither rank of it is late for the other."""
    found, other = lateness([of([us], group=name) for us, name in ((40, "1"), (30, "1"), (90, "2"), (90, "2"))])
    assert other == []
    assert [late.us for late in found if late] == [0, 10, 0, 0]
