"""Finds device events whose times or correlations cannot be, repairs what is certain and sets the rest apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.trace.calls.call import is_launch
from mlpfusion.trace.read.chrome import DEVICE_WORK

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.calls.call import Rows
    from mlpfusion.trace.read.columns import Kind
    from mlpfusion.trace.read.kineto import Trace

    Flags = NDArray[np.bool_]

# Two time stamps of one clock differ by less in their last digits.
_ROUNDING_NS: Final = 1_000
# Where the next event begins so much before an event ends, and by such a part of it, the one that ends late is damaged.
_OVERLAP_NS: Final = 5_000
_OVERLAP: Final = 0.05
# A kernel that programmatic launch overlaps with the next one, or that others resemble, is damaged only beyond this.
_LONGER: Final = 3
_LIKE: Final = 3
# The last of a stream has none behind it that tells, so that only what is absurd is damage.
_FAR: Final = 100
# Damage is rare; a place where more than this part overlaps runs several things at once.
_RARE: Final = 0.05
_FEW: Final = 3
# Clocks that wrote whole µs print 0 for what is shorter; a kernel that otherwise takes this long is not.
_SHORTEST_NS: Final = 2_000

_PLAIN: Final = re.compile(r"(cuda|cu|hip)\w*LaunchKernel\w*$|(cuda|hip|cu)LaunchCooperativeKernel$")
# The launches that can overlap a kernel with the one before it (programmatic dependent launch).
_PROGRAMMATIC: Final = re.compile(r"cuLaunchKernelEx|cudaLaunchKernelEx")
_COLLECTIVE: Final = re.compile(r"nccl|rccl|oneccl|mscclpp", re.IGNORECASE)
_COMMUNICATES: Final = re.compile(r"c10d::|nccl:|record_param_comms|ncclKernel|_c10d_functional::|rccl", re.IGNORECASE)


class Repaired(NamedTuple):
    """A trace in which damaged times are 0 and some correlations repaired, and what was damaged.

    `unknown` are rows of work whose duration is not known, `outside` those that belong nowhere, both in order of time:
    they have no time, or another correlation's. `crowded` are rows that overlap on one stream as a habit. Of `loose`
    kernels, which share a correlation or have 0, `matched` have a launch by name, order and stream.
    """

    trace: Trace
    unknown: Rows
    outside: Rows
    crowded: int = 0
    loose: int = 0
    matched: int = 0


def repaired(trace: Trace) -> Repaired:
    """The trace without times that cannot be, and with the correlations that can be told."""
    import numpy as np

    rows = np.flatnonzero(_are(trace, lambda kind: kind.category in DEVICE_WORK))
    if not len(rows):
        return Repaired(trace, rows, rows)
    outside = _nowhere(trace, rows)
    unknown = trace.duration[rows] < 0
    unknown |= _too_short(trace, rows)
    past, crowded = _past_the_next(trace, rows[~outside & ~unknown])
    unknown |= np.isin(rows, past)
    unknown |= np.isin(rows, _past_all(trace, rows[~outside & ~unknown]))
    unknown &= ~outside
    duration = trace.duration.copy()
    duration[rows[unknown | outside]] = 0
    correlation, extra, loose, matched = _linked(trace, rows, rows[unknown], rows[outside])
    outside |= np.isin(rows, extra)
    duration[extra] = 0
    trace = trace._replace(duration=duration, correlation=correlation)
    return Repaired(trace, rows[unknown & ~outside], rows[outside], crowded, loose, matched)


def _are(trace: Trace, wanted: Callable[[Kind], bool]) -> Flags:
    """For each row whether its kind is wanted."""
    import numpy as np

    kinds = np.fromiter((wanted(kind) for kind in trace.kinds), dtype=np.bool_, count=len(trace.kinds))
    found: Flags = kinds[trace.kind]
    return found


# ---- times -----------------------------------------------------------------------------------------------------------


def _nowhere(trace: Trace, rows: Rows) -> Flags:
    """Which of the rows begin so far before everything else that their start was never set."""
    import numpy as np

    starts = trace.start
    gaps = np.diff(starts)
    rest = starts[-1] - starts[1:]
    # Such rows are few, and what follows them takes less time than the gap behind them.
    apart = np.flatnonzero((gaps > rest) & (gaps > _LONGER * _OVERLAP_NS) & (rest > 0))
    apart = apart[apart < max(_FEW, _RARE * len(starts))]
    first = int(apart[-1]) + 1 if len(apart) else 0
    host = _are(trace, lambda kind: kind.category not in DEVICE_WORK)[:first]
    if (trace.duration[:first][host] > 0).any():
        first = 0  # something happened there: it is early work before a pause
    unset = (trace.start[rows] <= 0) & (trace.duration[rows] <= 0) & (starts[-1] > 0)
    found: Flags = (rows < first) | (unset & (trace.start[rows] < np.median(starts)))
    return found


def _too_short(trace: Trace, rows: Rows) -> Flags:
    """Which of the rows have no duration although their like takes long enough to have one."""
    import numpy as np

    found = np.zeros(len(rows), dtype=np.bool_)
    zero = trace.duration[rows] == 0
    for kind in np.unique(trace.kind[rows[zero]]).tolist():
        alike = trace.kind[rows] == kind
        taken = trace.duration[rows[alike & ~zero]]
        if len(taken) and np.median(taken) >= _SHORTEST_NS:
            found |= alike & zero
    return found


def _past_the_next(trace: Trace, rows: Rows) -> tuple[Rows, int]:
    """Rows that end after the next work of their stream begins, which cannot be, and how many overlap by habit.

    Work of one graph overlaps on the stream of its launch, and a kernel launched programmatically its predecessor.
    """
    import numpy as np

    if len(rows) < 2:
        return rows[:0], 0
    order = rows[np.lexsort((trace.start[rows], trace.place[rows]))]
    one, after = order[:-1], order[1:]
    end, end_after = (trace.start[row] + trace.duration[row] for row in (one, after))
    over = end - trace.start[after]
    graph = (trace.correlation[one] == trace.correlation[after]) & (trace.correlation[one] != 0)
    overlaps = (trace.place[one] == trace.place[after]) & (over > _ROUNDING_NS) & ~graph
    swallows = overlaps & (end > end_after + _ROUNDING_NS)
    large = overlaps & (over > _OVERLAP_NS) & (over > _OVERLAP * trace.duration[one])
    suspects = np.flatnonzero(swallows | large)
    if not len(suspects):
        return rows[:0], 0
    api = np.flatnonzero(_are(trace, lambda kind: kind.category == "api" and bool(_PROGRAMMATIC.match(kind.name))))
    programmatic = np.isin(trace.correlation[after[suspects]], trace.correlation[api])
    partly = programmatic & ~swallows[suspects]
    longer = _longer_than_alike(trace, rows, one[suspects])
    longer |= _alone(trace, rows, one[suspects]) & (
        ~programmatic | (over[suspects] > _LONGER * trace.duration[after[suspects]])
    )
    # A stream that overlaps by habit is a queue of several streams.
    place = trace.place[one[suspects]]
    many = np.bincount(place[~programmatic], minlength=len(trace.places))
    habit = (many > np.maximum(_FEW, _RARE * np.bincount(trace.place[rows], minlength=len(trace.places))))[place]
    impossible = longer & ~partly & ~(habit & ~programmatic)
    crowded = int(np.count_nonzero(habit & ~programmatic))
    return np.sort(one[suspects[impossible]]), crowded


def _past_all(trace: Trace, rows: Rows) -> Rows:
    """The last rows of their streams that end after all else and take a hundred times as long as any of their name."""
    import numpy as np

    order = rows[np.lexsort((trace.start[rows], trace.place[rows]))]
    last = order[np.append(trace.place[order][1:] != trace.place[order][:-1], [True])] if len(order) else order
    end = trace.start + trace.duration
    found = []
    for row in last[trace.duration[last] > _FAR * _SHORTEST_NS].tolist():
        alike = rows[(trace.kind[rows] == trace.kind[row]) & (rows != row)]
        if len(alike) > _LIKE and trace.duration[row] > _FAR * trace.duration[alike].max():
            others = np.delete(end, row)
            if end[row] - others.max() > trace.duration[row] / 2:
                found.append(row)
    return np.array(found, dtype=rows.dtype)


def _longer_than_alike(trace: Trace, rows: Rows, suspects: Rows) -> Flags:
    """Which of the suspects take far longer than the others of their name."""
    import numpy as np

    found = np.zeros(len(suspects), dtype=np.bool_)
    for kind in np.unique(trace.kind[suspects]).tolist():
        here = trace.kind[suspects] == kind
        typical = np.median(trace.duration[rows[trace.kind[rows] == kind]])
        found[here] = trace.duration[suspects[here]] > _LONGER * typical
    return found


def _alone(trace: Trace, rows: Rows, suspects: Rows) -> Flags:
    """Which of the suspects have few others of their name, which say nothing of how long such a one takes."""
    import numpy as np

    found: Flags = np.bincount(trace.kind[rows], minlength=len(trace.kinds))[trace.kind[suspects]] <= _LIKE
    return found


# ---- links -----------------------------------------------------------------------------------------------------------


def _linked(trace: Trace, rows: Rows, unknown: Rows, outside: Rows) -> tuple[Rows, Rows, int, int]:
    """The correlations with those that could be told, the kernels that remain extra, how many were loose and matched.

    A launch of a kernel runs one. Of several with its correlation one is its own: with a known time, and the first.
    """
    import numpy as np

    kernels = rows[_are(trace, lambda kind: kind.category == "kernel")[rows]]
    if len(outside):
        kernels = np.setdiff1d(kernels, outside)
    ids, counts = np.unique(trace.correlation[kernels], return_counts=True)
    shared = ids[(counts > 1) & (ids != 0)]
    correlation, nothing = trace.correlation, rows[:0]
    if not len(shared) and not (len(ids) and (ids == 0).any()):
        return correlation, nothing, 0, 0
    api = np.flatnonzero(_are(trace, lambda kind: kind.category == "api" and is_launch(kind.name)))
    is_plain = _are(trace, lambda kind: bool(_PLAIN.match(kind.name)))[api]
    plain = api[is_plain]
    plain = plain[~np.isin(trace.correlation[plain], trace.correlation[api[~is_plain]])]
    extra = _extra(trace, kernels[np.isin(trace.correlation[kernels], shared)], plain, unknown)
    loose = np.union1d(extra, kernels[trace.correlation[kernels] == 0])
    if not len(loose):
        return correlation, extra, 0, 0
    idle = plain[~np.isin(trace.correlation[plain], trace.correlation[rows]) & (trace.correlation[plain] != 0)]
    _, once = np.unique(trace.correlation[idle], return_index=True)  # a driver call within a runtime call is the same
    idle = np.sort(idle[once])
    talks = _are(trace, lambda kind: bool(_COLLECTIVE.search(kind.name)))[loose]
    spoken = _inside(trace, idle, lambda kind: kind.category in ("op", "annotation") and bool(
        _COMMUNICATES.match(kind.name)
    ))  # fmt: skip
    if not spoken.any() and talks.all():  # the operators of the collectives were not recorded
        spoken = ~spoken
    correlation = correlation.copy()
    matched: list[Rows] = []
    for some, launches in ((loose[talks], idle[spoken]), (loose[~talks], idle[~spoken])):
        for row, launch in _in_order(trace, some, launches):
            correlation[row] = trace.correlation[launch]
            matched.append(row)
    known = np.concatenate(matched) if matched else loose[:0]
    return correlation, np.setdiff1d(extra, known), len(loose), len(known)


def _extra(trace: Trace, kernels: Rows, plain: Rows, unknown: Rows) -> Rows:
    """The kernels that share the correlation of a plain launch with the one that is its own."""
    import numpy as np

    numbers: dict[int | str, int] = {}
    process = np.array([numbers.setdefault(place.pid, len(numbers)) for place in trace.places])
    ids = np.intersect1d(trace.correlation[plain], trace.correlation[kernels])
    shared = kernels[np.isin(trace.correlation[kernels], ids)]
    plain = plain[np.isin(trace.correlation[plain], ids)]
    # Two ranks in one file have a launch each.
    pairs = np.unique(np.searchsorted(ids, trace.correlation[plain]) * len(numbers) + process[trace.place[plain]])
    launches = np.bincount(pairs // len(numbers), minlength=len(ids))
    order = shared[np.lexsort((trace.start[shared], np.isin(shared, unknown), trace.correlation[shared]))]
    at = np.searchsorted(ids, trace.correlation[order])
    first = np.searchsorted(at, at, side="left")
    found: Rows = np.sort(order[np.arange(len(order)) - first >= launches[at]])
    return found


def _inside(trace: Trace, rows: Rows, wanted: Callable[[Kind], bool]) -> Flags:
    """Which of the rows begin inside an event of a wanted kind on their thread."""
    import numpy as np

    found = np.zeros(len(rows), dtype=np.bool_)
    around = np.flatnonzero(_are(trace, wanted))
    for place in np.unique(trace.place[rows]).tolist():
        here, there = trace.place[rows] == place, around[trace.place[around] == place]
        if not len(there):
            continue
        reached = np.maximum.accumulate(trace.start[there] + trace.duration[there])
        before = np.searchsorted(trace.start[there], trace.start[rows[here]], side="right") - 1
        found[here] = (before >= 0) & (reached[np.maximum(before, 0)] > trace.start[rows[here]])
    return found


def _in_order(trace: Trace, kernels: Rows, launches: Rows) -> list[tuple[Rows, Rows]]:
    """The kernels with their launches where one stream ran as many as there are launches, each after its own."""
    import numpy as np

    if not len(launches):
        return []
    kernels = kernels[trace.start[kernels] >= trace.start[launches[0]]]  # those before are of earlier launches
    certain = (
        len(kernels) == len(launches)
        and len(np.unique(trace.place[kernels])) == 1
        and bool((trace.start[kernels] >= trace.start[launches]).all())
    )
    return [(kernels, launches)] if certain else []
