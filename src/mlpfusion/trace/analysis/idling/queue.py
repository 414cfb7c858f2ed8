"""Measures how long launches wait until their work starts, and how many wait at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.records.breakdown import Queue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.trace.calls.call import Calls


def queue_of(calls: Calls, used: Sequence[int]) -> Queue | None:
    """The queue at the launches of the calls used, which those of all calls fill; None without launches."""
    import numpy as np

    trace, rows = calls.trace, calls.work.rows
    if not len(calls.api.rows) or not len(rows):
        return None
    launches, first = np.unique(calls.launched_by, return_index=True)
    starts = np.full(len(launches), np.iinfo(np.int64).max)
    at = np.searchsorted(launches, calls.launched_by)
    np.minimum.at(starts, at, trace.start[rows])
    launched = trace.start[launches]
    of_used = np.zeros(len(calls.windows), dtype=np.bool_)
    of_used[list(used)] = True
    call = np.repeat(np.arange(len(calls.windows)), np.diff(calls.work.bounds))[first]
    certain = starts >= launched  # else the two clocks disagree
    here = certain & of_used[call]
    if not here.any():
        return None
    delay = starts[here] - launched[here]
    queued = np.searchsorted(np.sort(launched[certain]), launched[here], side="right") - np.searchsorted(
        np.sort(starts[certain]), launched[here], side="right"
    )
    worst = int(np.flatnonzero(here)[delay.argmax()])
    work = rows[at == worst]
    return Queue(
        launches=int(here.sum()),
        delay_us=float(np.median(delay)) / 1000,
        worst_us=int(delay.max()) / 1000,
        worst=trace.kinds[trace.kind[work[trace.start[work].argmin()]]].name,
        queued=float(np.median(queued)),
        most_queued=int(queued.max()),
    )
