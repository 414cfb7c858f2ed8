"""Time is split by the innermost event of a thread, whatever the events' order, depth and overlap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.analysis.spans import Spans, both, own_ns, union, within, without

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def spans(parts: list[tuple[int, int]]) -> Spans:
    """The union of intervals, given as start and length."""
    made = np.array(sorted(parts), dtype=np.int64).reshape(-1, 2)
    found = union(made[:, 0], made.sum(axis=1))
    longer = found.end > found.start
    return Spans(found.start[longer], found.end[longer])


def instants(found: Spans) -> set[int]:
    return {at for start, end in zip(found.start.tolist(), found.end.tolist(), strict=True) for at in range(start, end)}


def owner(events: list[tuple[int, int]], instant: int) -> int | None:
    """Of the events that run then the one that began last."""
    running = [number for number, (start, length) in enumerate(events) if start <= instant < start + length]
    return running[-1] if running else None


@given(INTERVALS, INTERVALS)
def test_each_instant_belongs_to_the_event_that_began_last(parts: list[tuple[int, int]], some: list[tuple[int, int]]):
    events = sorted(some, key=lambda one: (one[0], -one[1]))
    of = spans(parts)
    start, length = np.array(events, dtype=np.int64).reshape(-1, 2).T
    expected = [0] * len(events)
    for instant in instants(of):
        if (number := owner(events, instant)) is not None:
            expected[number] += 1
    assert own_ns(of, start, start + length).tolist() == expected


@given(INTERVALS, INTERVALS)
def test_sets_of_intervals(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    a, b = spans(some), spans(others)
    assert instants(a) == {at for start, length in some for at in range(start, start + length)}
    assert instants(both(a, b)) == instants(a) & instants(b)
    assert instants(without(a, b)) == instants(a) - instants(b)
    assert a.total == len(instants(a))


@given(INTERVALS, INTERVALS)
def test_how_much_of_each_interval_is_inside(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    of = spans(some)
    start, length = np.array(others, dtype=np.int64).reshape(-1, 2).T
    by_hand = [len(instants(of) & set(range(at, at + runs))) for at, runs in others]
    assert within(of, start, start + length).tolist() == by_hand


@pytest.mark.parametrize("depth", [1, 200, 10_000])
def test_depth_costs_nothing_but_time(depth: int) -> None:
    """A recursion: each one inside the one before, 1 later and ending 1 earlier."""
    start = np.arange(depth, dtype=np.int64)
    end = 4 * depth - start
    own = own_ns(Spans(np.array([0]), np.array([4 * depth])), start, end)
    assert own.tolist() == [2] * (depth - 1) + [2 * depth + 2]
