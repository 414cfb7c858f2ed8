"""Whose work occupied the device in a call, against a count of every µs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.raw import api, event, instants, kernel, launched, step, text

from mlpfusion.trace.analysis.summary import read


def asynchronous(steps: int, products: int, issue: int, runs: int) -> list[Any]:
    """Steps of `products` launches, one every `issue` µs, whose kernels of `runs` µs queue on one stream."""
    made = []
    free = 0
    for index in range(steps):
        start = 10_000 + index * products * issue
        made.append(step(index, start, products * issue))
        for number in range(products):
            at = start + number * issue + 3
            free = max(free, at + 8)
            made += launched("ampere_sgemm_128x64_tn", at, free, runs, 1 + index * products + number)
            free += runs
    return made


def test_work_of_earlier_steps_keeps_the_device_busy() -> None:
    found = read(text(asynchronous(5, 10, 100, 150))).device_use
    assert found is not None
    assert (found.idle_us, found.own_us, found.others_us) == (0, 0, 1000)


def test_a_device_that_waits_for_launches_idles() -> None:
    found = read(text(asynchronous(5, 10, 100, 40))).device_use
    assert found is not None
    assert (found.idle_us, found.own_us) == (600, 400)
    assert found.working_us + found.launched_us == 600


def test_work_without_a_launch_is_a_share_of_its_own() -> None:
    made = asynchronous(3, 10, 100, 40)
    made += [kernel("backlog", 11_000 + 50 + 100 * number, 50, 0, stream=9) for number in range(10)]
    found = read(text(made), call="ProfilerStep").device_use
    assert found is not None
    busiest = read(text([*made[:0], *made])).device_use
    assert busiest == found
    assert found.own_us + found.others_us + found.orphans_us + found.idle_us == found.length_us


def test_another_device_does_not_occupy_this_one() -> None:
    made = asynchronous(3, 10, 100, 40)
    made += [kernel("theirs", 10_000, 5000, 0, device=1)]
    found = read(text(made)).device_use
    assert found is not None
    assert (found.idle_us, found.orphans_us) == (600, 0)


def test_a_call_alone_ends_with_its_work() -> None:
    """No step follows, so what runs behind the annotation is part of the call."""
    made = [event("user_annotation", "block", start, 50) for start in (1000, 2000)]
    for number, start in enumerate((1000, 2000)):
        made += launched("k", start + 10, start + 20, 180, number + 1)
    found = read(text(made)).device_use
    assert found is not None
    assert (found.length_us, found.own_us, found.idle_us) == (200, 180, 20)


WORK = st.lists(
    st.tuples(st.integers(0, 900), st.integers(0, 900), st.integers(0, 300), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(WORK)
def test_shares_are_those_of_a_count_of_every_microsecond(work: list[tuple[int, int, int, bool]]) -> None:
    made = [step(index, 1000 + 300 * index, 300) for index in range(3)] + launched("k", 1001, 1005, 10, 500)
    mine: dict[int, list[Any]] = {0: [made[-1]], 1: [], 2: []}
    orphans = []
    for number, (at, runs, length, is_orphan) in enumerate(work, 1):
        one = kernel("k", 1000 + runs, length, 0 if is_orphan else number, stream=8 + number)
        made.append(one)
        if is_orphan:
            orphans.append(one)
        else:
            made.append(api("cudaLaunchKernel", 1000 + at, 1, number))
            mine[min(at // 300, 2)].append(one)
    found = read(text(made), call="ProfilerStep").device_use
    assert found is not None
    begin = 1000 + 300 * found.call
    end = begin + 300
    if found.call == 2:  # the last call lasts until its work ends
        end = max([end, *(one["ts"] + one["dur"] for one in mine[2])])
    own = instants(mine[found.call], begin, end)
    launched_work = instants([one for rows in mine.values() for one in rows], begin, end)
    everything = instants(made, begin, end)
    assert found.length_us == end - begin
    assert found.own_us == len(own)
    assert found.others_us == len(launched_work - own)
    assert found.orphans_us == pytest.approx(len(everything - launched_work))
    assert found.idle_us == end - begin - len(everything)
    parts = found.working_us + found.waiting_us + found.final_wait_us + found.launched_us
    assert parts == pytest.approx(found.idle_us)
