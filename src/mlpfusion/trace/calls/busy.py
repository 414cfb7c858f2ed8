"""Measures how long the device works in each call: unions of intervals, per call and per stream, and idle shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.calls.call import Calls

    Numbers = NDArray[np.int64]

_LARGEST = 2**62


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Nanoseconds covered by at least one of the intervals."""
    covered = 0
    reached: int | None = None
    for start, end in sorted(intervals):
        begin = start if reached is None else max(start, reached)
        if end > begin:
            covered += end - begin
        reached = end if reached is None else max(reached, end)
    return covered


def unions_ns(group: Numbers, start: Numbers, end: Numbers, groups: int) -> Numbers:
    """For each group the nanoseconds covered by at least one of its intervals; `group` numbers them from 0."""
    import numpy as np

    if not len(group):
        return np.zeros(groups, dtype=np.int64)
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    base = int(start.min())
    span = int(end.max()) - base + 1
    if span > _LARGEST // (groups + 1):  # a damaged time is far from the rest
        parts: list[list[tuple[int, int]]] = [[] for _ in range(groups)]
        for number, first, last in zip(group.tolist(), start.tolist(), end.tolist(), strict=True):
            parts[number].append((first, last))
        return np.array([union_ns(part) for part in parts], dtype=np.int64)
    # Each group on a stretch of its own, so that one running maximum serves them all.
    begins, ends = start - base + group * span, end - base + group * span
    reached = np.concatenate(([0], np.maximum.accumulate(ends)[:-1]))
    covered = np.maximum(0, ends - np.maximum(begins, np.maximum(reached, group * span)))
    return np.bincount(group, weights=covered, minlength=groups).astype(np.int64)


def calls_of(calls: Calls) -> Numbers:
    """For each row of the calls' work the index of its call."""
    import numpy as np

    return np.repeat(np.arange(len(calls.windows)), np.diff(calls.work.bounds))


def busy_ns(calls: Calls) -> Numbers:
    """For each call the nanoseconds in which any of its work ran."""
    start, end = _intervals(calls)
    return unions_ns(calls_of(calls), start, end, len(calls.windows))


def idle_shares(calls: Calls) -> NDArray[np.float64]:
    """For each call the part of its time, to its end on host and device, in which none of its work ran."""
    import numpy as np

    begins = np.array([window.start_ns for window in calls.windows], dtype=np.int64)
    stops = np.array([window.end_ns for window in calls.windows], dtype=np.int64)
    start, end = _intervals(calls)
    group = calls_of(calls)
    np.maximum.at(stops, group, end)
    covered = unions_ns(group, np.maximum(start, begins[group]), np.maximum(end, begins[group]), len(begins))
    length: NDArray[np.int64] = np.maximum(1, stops - begins)
    return 1 - covered / length


def stream_busy_ns(calls: Calls) -> dict[int, Numbers]:
    """By place for each call the nanoseconds in which some of its work ran there."""
    import numpy as np

    start, end = _intervals(calls)
    group, place = calls_of(calls), calls.trace.place[calls.work.rows]
    found = {}
    for number in np.unique(place).tolist():
        here = place == number
        found[number] = unions_ns(group[here], start[here], end[here], len(calls.windows))
    return found


def _intervals(calls: Calls) -> tuple[Numbers, Numbers]:
    start = calls.trace.start[calls.work.rows]
    return start, start + calls.trace.duration[calls.work.rows]
