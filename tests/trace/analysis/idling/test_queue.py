"""Delays from launch to start, and the length of the queue, are those of a count over the raw events."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.raw import api, kernel, launched, step, text

from mlpfusion.trace.analysis.summary import read

if TYPE_CHECKING:
    from mlpfusion.records.breakdown import Queue


def queue(made: list[Any]) -> Queue | None:
    found = read(text(made)).breakdown
    assert found is not None
    return found.queue


DELAYS = st.lists(st.integers(5, 3000), min_size=1, max_size=12)


@settings(max_examples=rings.examples(40))
@given(DELAYS)
def test_delays_and_lengths_by_hand(delays: list[int]) -> None:
    made, free, pairs = [], 0, []
    for call in range(3):
        start = 100_000 * (call + 1)
        made.append(step(call, start, 90_000))
        for number, delay in enumerate(delays):
            at = start + 100 * number + 10
            begins = max(free, at + delay)
            free = begins + 50
            made += launched(f"k{number}", at, begins, 50, 100 * call + number + 1)
            pairs.append((at, begins, f"k{number}"))
    found = queue(made)
    assert found is not None
    assert found.launches == len(pairs)
    assert found.delay_us == median(begins - at for at, begins, _ in pairs)
    worst = max(begins - at for at, begins, _ in pairs)
    assert found.worst_us == worst
    assert found.worst in {name for at, begins, name in pairs if begins - at == worst}
    lengths = [sum(other <= at < begins for other, begins, _ in pairs) for at, *_ in pairs]
    assert (found.queued, found.most_queued) == (median(lengths), max(lengths))


def test_a_graph_starts_with_its_first_kernel() -> None:
    made = []
    for call in range(3):
        start = 10_000 * (call + 1)
        made += [step(call, start, 9000), api("cudaGraphLaunch", start + 10, 20, call + 1)]
        made += [kernel("g", start + 50 + 100 * one, 90, call + 1) for one in range(5)]
    found = queue(made)
    assert found is not None
    assert (found.launches, found.delay_us, found.worst_us, found.most_queued) == (3, 40, 40, 1)


def test_a_start_before_the_launch_is_left_out() -> None:
    made = []
    for call in range(3):
        start = 10_000 * (call + 1)
        made += [step(call, start, 9000), *launched("k", start + 100, start + 130, 50, 10 * call + 1)]
        made += launched("early", start + 500, start + 490, 50, 10 * call + 2)
    found = queue(made)
    assert found is not None
    assert (found.launches, found.delay_us) == (3, pytest.approx(30))


def test_without_api_calls_there_is_no_queue() -> None:
    made = [one for call in range(3) for one in (step(call, 1000 * call, 900), kernel("k", 1000 * call + 5, 9, 0))]
    assert queue(made) is None
