"""Calculates with sets of disjoint intervals, and splits them by the innermost event of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.calls.call import Rows


class Spans(NamedTuple):
    """Disjoint intervals in time order, in ns."""

    start: Rows
    end: Rows

    @property
    def total(self) -> int:
        """How long they are together."""
        return int((self.end - self.start).sum())


def union(start: Rows, end: Rows) -> Spans:
    """The union of intervals, given by start."""
    import numpy as np

    if not len(start):
        return Spans(start, end)
    reached = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reached[:-1]))
    return Spans(start[first], np.append(reached[:-1][first[1:]], reached[-1]))


def both(spans: Spans, others: Spans) -> Spans:
    """What is in both."""
    pieces, inside = _pieces(spans, others)
    return Spans(pieces.start[inside], pieces.end[inside])


def without(spans: Spans, others: Spans) -> Spans:
    """What of the former is not in the latter."""
    pieces, inside = _pieces(spans, others)
    return Spans(pieces.start[~inside], pieces.end[~inside])


def within(spans: Spans, start: Rows, end: Rows) -> Rows:
    """For each interval how much of it is in `spans`; they may overlap, and be in any order."""
    return _until(spans, end) - _until(spans, start)


def own_ns(spans: Spans, start: Rows, end: Rows) -> NDArray[np.int64]:
    """For each event of a thread, given by start and the longest first, how much of `spans` is its own.

    An instant is its own if it began last of those still running: for nested ones that is the innermost. However they
    overlap, and however deep they are, no instant is counted twice.
    """
    import numpy as np

    begins, ends = _until(spans, start).tolist(), _until(spans, end).tolist()
    found = [0] * len(begins)
    starts, stops = start.tolist(), end.tolist()
    running: list[int] = []
    reached = 0  # how much of `spans` has an owner, or none for good
    for index, begin in enumerate(starts):
        while running and stops[running[-1]] <= begin:
            ended = running.pop()
            if ends[ended] > reached:
                found[ended] += ends[ended] - reached
                reached = ends[ended]
        if running:
            found[running[-1]] += begins[index] - reached
        reached = begins[index]
        running.append(index)
    while running:
        ended = running.pop()
        if ends[ended] > reached:
            found[ended] += ends[ended] - reached
            reached = ends[ended]
    return np.array(found, dtype=np.int64)


def _pieces(spans: Spans, others: Spans) -> tuple[Spans, NDArray[np.bool_]]:
    """`spans` cut where `others` begin and end, and which pieces are in those."""
    import numpy as np

    cuts = np.unique(np.concatenate((*spans, *others)))
    low, high = cuts[:-1], cuts[1:]
    wanted = _holds(spans, low)
    return Spans(low[wanted], high[wanted]), _holds(others, low[wanted])


def _holds(spans: Spans, instants: Rows) -> NDArray[np.bool_]:
    import numpy as np

    if not len(spans.start):
        return np.zeros(len(instants), dtype=np.bool_)
    before = np.searchsorted(spans.start, instants, side="right") - 1
    found: NDArray[np.bool_] = (before >= 0) & (instants < spans.end[before])
    return found


def _until(spans: Spans, instants: Rows) -> Rows:
    """How much of `spans` is before each instant."""
    import numpy as np

    if not len(spans.start):
        return np.zeros(len(instants), dtype=np.int64)
    lengths = np.concatenate(([0], np.cumsum(spans.end - spans.start)))
    before = np.searchsorted(spans.start, instants, side="right")
    last = np.maximum(before - 1, 0)
    partly = np.clip(instants - spans.start[last], 0, spans.end[last] - spans.start[last])
    found: Rows = np.where(before > 0, lengths[last] + partly, 0)
    return found
