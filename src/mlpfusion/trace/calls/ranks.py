"""Separates the processes of a merged trace by the devices they use, where correlation ids repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.calls.call import Rows
    from mlpfusion.trace.read.kineto import Trace


class Keys(NamedTuple):
    """For each row of a trace what joins work to its launch, 0 for nothing; `unsure` has work of an unknown process."""

    of: Rows
    unsure: Rows


def keys(trace: Trace, api: Rows, work: Rows, mine: int | str) -> Keys:
    """The correlations, or numbers that also distinguish processes where two launched under one correlation.

    A device whose other work was all launched by one process belongs to it. Work of the rest goes to the process
    `mine`, and is `unsure`.
    """
    import numpy as np

    numbers: dict[int | str, int] = {}
    process = np.array([numbers.setdefault(place.pid, len(numbers)) for place in trace.places], dtype=np.int64)
    ids, at = np.unique(trace.correlation[api], return_inverse=True)
    launched = np.unique(at * len(numbers) + process[trace.place[api]])
    by = np.bincount(launched // len(numbers), minlength=len(ids))
    shared = (by > 1) & (ids != 0)
    if not shared.any():
        return Keys(trace.correlation, work[:0])
    launcher = np.full(len(ids), -1)
    launcher[launched // len(numbers)] = launched % len(numbers)
    launcher[shared] = -1
    place = np.minimum(np.searchsorted(ids, trace.correlation[work]), len(ids) - 1)
    has = (ids[place] == trace.correlation[work]) & (trace.correlation[work] != 0)
    device = process[trace.place[work]]
    owner = _owners(device[has], launcher[place[has]], len(numbers))
    doubtful = has & shared[place]
    whose = np.where(doubtful, owner[device], launcher[place])
    unsure = doubtful & (whose < 0)
    whose = np.where(unsure, numbers[mine], whose)
    found = np.zeros(len(trace.start), dtype=np.int64)
    found[api] = np.where(ids[at] == 0, 0, at * len(numbers) + process[trace.place[api]] + 1)
    found[work] = np.where(has, place * len(numbers) + whose + 1, 0)
    return Keys(found, work[unsure])


def _owners(device: Rows, launcher: Rows, processes: int) -> NDArray[np.int64]:
    """For each device the one process that launched its work, -1 where there are several or none is known."""
    import numpy as np

    pairs = np.unique((device * processes + launcher)[launcher >= 0])
    found = np.full(processes, -1)
    found[pairs // processes] = pairs % processes
    found[np.bincount(pairs // processes, minlength=processes) > 1] = -1
    return found
