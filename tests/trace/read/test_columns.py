"""Entries as columns: exact to the nanosecond, sorted, and what has no time is dropped with its reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.read.columns import Columns
from mlpfusion.trace.read.entry import Entry, decode_alone


def entry(name: str = "k", ts: Any = 1, dur: Any = 1, cat: str = "kernel", **more: Any) -> Entry:
    found = decode_alone(
        json.dumps({"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, **more})
    )
    assert found is not None
    return found


def filled(*entries: Entry) -> Columns:
    made = Columns()
    made.extend(entries)
    return made


TIMES = st.integers(0, 10**15)


@given(st.lists(st.tuples(TIMES, st.integers(0, 10**9)), max_size=8), st.integers(1, 3))
def test_times_are_exact_and_sorted_by_start_then_the_longest(times: list[tuple[int, int]], size: int) -> None:
    made = Columns()
    entries = [
        entry(ts=f"{start // 1000}.{start % 1000:03d}", dur=f"{length // 1000}.{length % 1000:03d}")
        for start, length in times
    ]
    for begin in range(0, len(entries), size):
        made.extend(entries[begin : begin + size])
    table = made.table()
    found = list(zip(table.start.tolist(), table.duration.tolist(), strict=True))
    assert found == sorted(times, key=lambda each: (each[0], -each[1]))
    assert table.zero == sum(length == 0 for _, length in times)


@pytest.mark.parametrize(
    ("ts", "dur", "found"),
    [(1, 2, (1000, 2000)), (1.5, 2, (1500, 2000)), ("1", "0.25", (1000, 250)), (0, None, (0, 0))],
)
def test_times_may_be_written_in_any_way(ts: Any, dur: Any, found: tuple[int, int]) -> None:
    table = filled(entry(ts=ts, dur=dur)).table()
    assert (table.start.tolist(), table.duration.tolist()) == ([found[0]], [found[1]])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"ts": "soon"}, "has no readable start"),
        ({"ts": None}, "has no readable start"),
        ({"dur": "long"}, "has no readable duration"),
        ({"name": ""}, "has no name"),
    ],
)
def test_what_cannot_be_placed_is_dropped_with_its_reason_and_no_other(wrong: dict[str, Any], why: str) -> None:
    made = filled(entry("a"), entry(**{"name": "b", **wrong}), entry("c", ts=5))
    assert [reason for _, reason in made.unread] == [why]
    assert (made.seen, made.dropped) == (3, 1)
    assert len(made.table().start) == 2


def test_a_negative_duration_is_counted_and_stays_for_events_of_the_device() -> None:
    """A reading names damaged events of the device; one of the host counts as an instant."""
    made = filled(entry(dur=-3), entry("op", cat="cpu_op", dur=-3, ts=5))
    assert made.negative == 2
    assert made.table().duration.tolist() == [-3000, 0]


def test_entries_that_are_no_intervals_are_counted_apart() -> None:
    begin = Entry(ph="B", name="a")
    made = filled(begin, Entry(ph="M"))
    assert (made.seen, made.others, made.begins) == (0, 2, 1)
    made.extend([entry(), begin])
    assert made.begins == 1  # beside timed entries a beginning is no sign of anything


def test_frames_of_python_and_unknown_categories_are_left_out() -> None:
    made = filled(entry(cat="python_function"), entry(cat="somebody's"), entry("op", cat="cpu_op"))
    assert [made.kinds()[number].name for number in made.table().kind.tolist()] == ["op"]


def test_one_place_is_one_however_its_ids_are_written() -> None:
    made = filled(entry(tid=7), entry(tid="7", ts=2), entry(tid="stream", ts=3))
    places = made.table().place.tolist()
    assert places[0] == places[1] != places[2]
    assert made.places()[places[2]].tid == "stream"


@pytest.mark.parametrize(("written", "kept"), [(3, 3), ("3", 3), (2**64 - 1, -1), (None, 0), ("x", 0)])
def test_a_correlation_is_64_bits(written: Any, kept: int) -> None:
    assert filled(entry(args={"correlation": written})).table().correlation.tolist() == [kept]


def test_an_arrow_joins_what_no_id_joins() -> None:
    arrow = {"id": 9, "cat": "ac2g", "name": "ac2g", "pid": 0}
    begin, end = (decode_alone(json.dumps({**arrow, **more})) for more in (
        {"ph": "s", "tid": 1, "ts": 10}, {"ph": "f", "tid": 7, "ts": 50}))  # fmt: skip
    made = filled(entry("cudaLaunchKernel", ts=10, cat="cuda_runtime", tid=1), entry("k", ts=50), begin, end)
    table = made.table()
    api, kernel = table.correlation.tolist()
    assert api == kernel != 0
    assert table.linked_by_flow == 1
