"""Sets of bytes as runs of addresses, with union, overlap and difference.

Inside, a set is a sorted array [n, 2] of disjoint, non-adjacent intervals [start, stop).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mlpfusion.records.traffic import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Intervals = NDArray[np.int64]

# Pieces beyond this many (every second element of a large matrix, say) are not distinguished: 2^22 intervals are 64 MB.
MOST_PIECES: Final = 2**22


def of_strided(start: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[Run, ...] | None:
    """The runs of a strided tensor whose first element is at `start`; strides in bytes, none negative.

    Empty for an empty tensor; None where it falls into too many pieces to tell them apart.
    """
    if any(size == 0 for size in shape):
        return ()
    # An expanded dimension (stride 0) touches nothing more; size 1 has no say, whatever its stride.
    dims = sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1 and stride)
    length = itemsize
    while dims and dims[0][0] <= length:  # adjacent or overlapping: one piece
        stride, size = dims.pop(0)
        length += stride * (size - 1)
    merged: list[tuple[int, int]] = []
    for stride, size in dims:
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0], merged[-1][1] * size)
        else:
            merged.append((stride, size))
    if not merged:
        return (Run(start, length, length, 1),)
    pitch, count = merged[0]
    outer = merged[1:]
    total = 1
    for _, size in outer:
        total *= size
    if total > MOST_PIECES or total * count > MOST_PIECES:
        return None
    starts = [start]
    for stride, size in outer:
        starts = [first + stride * index for index in range(size) for first in starts]
    if len(starts) == 1:
        return (Run(start, length, pitch, count),)
    return compress(intervals([Run(first, length, pitch, count) for first in starts]))


def of_addresses(addresses: Any, itemsize: int) -> Intervals:
    """The set of elements of `itemsize` bytes at these addresses, given in any order and any number of times."""
    import numpy as np

    starts = np.unique(np.asarray(addresses, dtype=np.int64).ravel())
    return _joined(np.stack((starts, starts + itemsize), axis=1))


def intervals(runs: Sequence[Run]) -> Intervals:
    """The set that these runs cover."""
    import numpy as np

    parts = []
    for start, length, pitch, count in runs:
        starts = start + pitch * np.arange(count, dtype=np.int64)
        parts.append(np.stack((starts, starts + length), axis=1))
    if not parts:
        return np.empty((0, 2), dtype=np.int64)
    return joined(np.concatenate(parts))


def compress(pieces: Intervals) -> tuple[Run, ...]:
    """The fewest runs that a single pass finds: neighbours of equal length and distance share one."""
    import numpy as np

    runs: list[Run] = []
    starts, lengths = pieces[:, 0], pieces[:, 1] - pieces[:, 0]
    index, total = 0, len(pieces)
    while index < total:
        length = int(lengths[index])
        if index + 1 == total or lengths[index + 1] != length:
            runs.append(Run(int(starts[index]), length, length, 1))
            index += 1
            continue
        pitch = int(starts[index + 1] - starts[index])
        same = (np.diff(starts[index:]) == pitch) & (lengths[index + 1 :] == length)
        count = (int(np.argmin(same)) if not same.all() else len(same)) + 1
        runs.append(Run(int(starts[index]), length, pitch, count))
        index += count
    return tuple(runs)


def size(pieces: Intervals) -> int:
    """Bytes in a set."""
    return int((pieces[:, 1] - pieces[:, 0]).sum())


def union(a: Intervals, b: Intervals) -> Intervals:
    """Bytes in either set."""
    return _combined(a, b, lambda inside_a, inside_b: inside_a | inside_b)


def overlap(a: Intervals, b: Intervals) -> Intervals:
    """Bytes in both sets."""
    return _combined(a, b, lambda inside_a, inside_b: inside_a & inside_b)


def minus(a: Intervals, b: Intervals) -> Intervals:
    """Bytes of `a` that are not in `b`."""
    return _combined(a, b, lambda inside_a, inside_b: inside_a & ~inside_b)


def _combined(a: Intervals, b: Intervals, keep: Any) -> Intervals:
    """Cut both at every edge of either, and keep the pieces that `keep` wants."""
    import numpy as np

    edges = np.unique(np.concatenate((a.ravel(), b.ravel())))
    if len(edges) < 2:
        return np.empty((0, 2), dtype=np.int64)
    kept = keep(_inside(a, edges[:-1]), _inside(b, edges[:-1]))
    return _joined(np.stack((edges[:-1][kept], edges[1:][kept]), axis=1))


def _inside(pieces: Intervals, points: NDArray[np.int64]) -> NDArray[np.bool_]:
    import numpy as np

    # Both edges are in one ascending row; a point is inside where an odd number of edges is at or before it.
    inside: NDArray[np.bool_] = np.searchsorted(pieces.ravel(), points, side="right") % 2 == 1
    return inside


def joined(pieces: Intervals) -> Intervals:
    """The set that intervals in any order cover."""
    import numpy as np

    return _joined(pieces[np.argsort(pieces[:, 0], kind="stable")])


def _joined(pieces: Intervals) -> Intervals:
    """Intervals by ascending start with those that touch or overlap made one."""
    import numpy as np

    if len(pieces) < 2:
        return pieces
    stops = np.maximum.accumulate(pieces[:, 1])
    first = np.concatenate(([True], pieces[1:, 0] > stops[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.stack((pieces[first, 0], stops[last]), axis=1)
