"""Measures who arrives last at the collectives of a job, by their durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from mlpfusion.records.job import Late
from mlpfusion.trace.analysis.split import communicates
from mlpfusion.trace.names.decode import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.calls.call import Calls

# Ranks whose times in a collective are this close arrive together: launches and links are not more even.
_TOGETHER_US: Final = 5.0
# One side of these waits for the other, and not both for the last.
_PAIRWISE: Final = frozenset({"send_recv"})

# By call and name, in which the order of a rank's collectives tells them apart, their durations in µs.
Arrivals: TypeAlias = "dict[tuple[str, str], NDArray[np.float64]]"


def arrivals(calls: Calls, used: Sequence[int]) -> Arrivals:
    """The durations of the collectives in the calls that are used, in the order in which they ran.

    A call is known by its name (`ProfilerStep#5`) where those differ, else by its number.
    """
    import numpy as np

    trace = calls.trace
    talks = communicates(trace)
    names = [window.name for window in calls.windows]
    named = len(set(names)) == len(names)
    found: Arrivals = {}
    for index in used:
        rows = np.sort(calls.work.of(index))
        rows = rows[talks[trace.kind[rows]]]
        kinds = trace.kind[rows]
        for kind in np.unique(kinds).tolist():
            decoded = decode(trace.kinds[kind].name)
            what = " ".join((*decoded.fused_ops, decoded.dtype or "")) or trace.kinds[kind].name
            if not _PAIRWISE.isdisjoint(decoded.fused_ops):
                continue
            key = names[index] if named else str(index), what
            times = trace.duration[rows[kinds == kind]] / 1000
            found[key] = np.concatenate((found[key], times)) if key in found else times
    return found


def lateness(ranks: Sequence[Arrivals]) -> tuple[list[Late | None], list[int]]:
    """For each rank how late it arrives, None where nothing of it can be matched, and those that ran other collectives.

    Collectives are matched by call, name and order, among the ranks that ran as many as most did.
    """
    import numpy as np

    late, held, last, of = (np.zeros(len(ranks)) for _ in range(4))
    calls: list[set[str]] = [set() for _ in ranks]
    other: set[int] = set()
    for key in dict.fromkeys(key for rank in ranks for key in rank):
        having = [number for number, rank in enumerate(ranks) if key in rank]
        counts = [len(ranks[number][key]) for number in having]
        usual = max(set(counts), key=lambda count: (counts.count(count), count))
        same = [number for number, count in zip(having, counts, strict=True) if count == usual]
        other.update(set(having) - set(same))
        if len(same) < 2:
            continue
        times = np.stack([ranks[number][key] for number in same])
        late[same] += (times.max(axis=0) - times).sum(axis=1)
        waits = times.max(axis=0) - times.min(axis=0)
        apart = waits > _TOGETHER_US
        latest = np.array(same)[times.argmin(axis=0)[apart]]
        np.add.at(last, latest, 1)
        np.add.at(held, latest, waits[apart])
        of[same] += usual
        for number in same:
            calls[number].add(key[0])
    found = [
        Late(
            us=float(late[number] / len(calls[number])),
            held_us=float(held[number] / len(calls[number])),
            last=int(last[number]),
            of=int(of[number]),
        )
        if calls[number]
        else None
        for number in range(len(ranks))
    ]
    return found, sorted(other)
