"""Measures how long the device works in each call: unions of intervals, per call, per stream and by whose work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.trace.read.chrome import DEVICE_WORK

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.calls.call import Calls

    Numbers = NDArray[np.int64]

_LARGEST: Final = 2**62
# Owners of device work that are no call.
_BETWEEN: Final = -1
_ORPHAN: Final = -2


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


class Occupancy(NamedTuple):
    """Of each call the nanoseconds of its length, and those in which its main device ran what, and idled.

    A call begins as its event does, and ends with that event or its own last work, but no later than the next call
    begins. An instant in which several ran counts once: as the call's `own` work, else as that of `others` (other
    calls, and launches between them), else of the `orphans`, whose launch is not in the trace.
    """

    begins: Numbers
    ends: Numbers
    own: Numbers
    others: Numbers
    orphans: Numbers
    idle: Numbers


def occupancy(calls: Calls) -> Occupancy:
    """Whose work occupied the device in each call; all work counts, whoever launched it."""
    import numpy as np

    begins = np.array([window.start_ns for window in calls.windows], dtype=np.int64)
    stops = np.array([window.end_ns for window in calls.windows], dtype=np.int64)
    owner = np.full(len(calls.trace.start), _ORPHAN)
    owner[calls.between] = _BETWEEN
    owner[calls.work.rows] = calls_of(calls)
    rows = device_rows(calls)
    mine = rows[owner[rows] >= 0]
    last = np.zeros(len(begins), dtype=np.int64)
    np.maximum.at(last, owner[mine], calls.trace.start[mine] + calls.trace.duration[mine])
    following = np.append(begins[1:], _LARGEST)
    ends = np.maximum(np.maximum(stops, np.minimum(last, following)), begins + 1)
    start = calls.trace.start[rows]
    end = start + calls.trace.duration[rows]
    # Each piece of work with each of the calls that it overlaps.
    first = np.searchsorted(np.maximum.accumulate(ends), start, side="right")
    count = np.maximum(0, np.searchsorted(begins, end, side="left") - first)
    which = np.repeat(np.arange(len(rows)), count)
    call = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    start, end = np.maximum(start[which], begins[call]), np.minimum(end[which], ends[call])
    whose = owner[rows][which]
    own, launched, everything = (
        unions_ns(call[counts], start[counts], end[counts], len(begins))
        for counts in (whose == call, whose != _ORPHAN, slice(None))
    )
    return Occupancy(begins, ends, own, launched - own, everything - launched, ends - begins - everything)


def device_rows(calls: Calls) -> Numbers:
    """The rows of work on the main device: the one that ran most pieces of the calls' own work."""
    import numpy as np

    trace = calls.trace
    kinds = np.array([kind.category in DEVICE_WORK for kind in trace.kinds], dtype=np.bool_)
    rows = np.flatnonzero(kinds[trace.kind])
    if not len(calls.work.rows):
        return rows
    numbers: dict[int | str, int] = {}
    device = np.array([numbers.setdefault(place.pid, len(numbers)) for place in trace.places])
    most = np.bincount(device[trace.place[calls.work.rows]]).argmax()
    found: Numbers = rows[device[trace.place[rows]] == most]
    return found


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
