"""Measures who arrives last at the collectives of a job, by their durations."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from mlpfusion.records.job import Late

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.records.breakdown import CollectiveRun
    from mlpfusion.trace.read.kineto import Event

# Ranks whose times in a collective are this close arrive together: launches and links are not more even.
_TOGETHER_US: Final = 5.0
# These do not end for all at once: one side waits for the other, or a root leaves early.
_UNEVEN: Final = frozenset({"send", "recv", "send_recv", "broadcast", "reduce", "gather", "scatter"})

# By call, and group with operation, in which the order of a rank's collectives tells them apart: durations in µs.
Arrivals: TypeAlias = "dict[tuple[str, str], NDArray[np.float64]]"


def arrivals(runs: Sequence[CollectiveRun], calls: Sequence[Event]) -> Arrivals:
    """The durations of the collectives of a trace, in the order of their launches.

    `calls` delimit the calls of the trace, each known by its name (`ProfilerStep#5`) where those differ, else by its
    number.
    """
    import numpy as np

    names = [call.name for call in calls]
    named = len(set(names)) == len(names)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        if run.operation not in _UNEVEN:
            group, told, _ = run.key.rpartition(":")
            what = f"{group}:{run.operation}" if told else run.operation
            found[names[run.call] if named else str(run.call), what].append(run.us)
    return {key: np.array(times) for key, times in found.items()}


def lateness(ranks: Sequence[Arrivals]) -> tuple[list[Late | None], list[int]]:
    """For each rank how late it arrives, None where nothing of it can be matched, and those that ran other collectives.

    Collectives are matched by call, group, operation and order, among the ranks that ran as many as most did.
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
