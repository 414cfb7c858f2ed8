"""Splits a call between compute, communication, both at once, and an idle device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.records.breakdown import Split
from mlpfusion.trace.analysis.categories import category_of
from mlpfusion.trace.calls.busy import device_rows, union_ns
from mlpfusion.trace.calls.link import flags
from mlpfusion.trace.names.decode import decode
from mlpfusion.trace.read.chrome import DEVICE_WORK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.records.trace import DeviceUse
    from mlpfusion.trace.calls.call import Calls
    from mlpfusion.trace.read.kineto import Trace


def split_of(calls: Calls, use: DeviceUse) -> Split:
    """How the main device spent the call that `use` is of: unions of all work in it, whoever launched it."""
    trace = calls.trace
    begin = calls.windows[use.call].start_ns
    end = begin + round(use.length_us * 1000)
    rows = device_rows(calls)
    start = trace.start[rows].clip(begin, end)
    stop = (trace.start[rows] + trace.duration[rows]).clip(begin, end)
    talks = communicates(trace)[trace.kind[rows]]

    def covered(wanted: NDArray[np.bool_]) -> int:
        here = wanted & (stop > start)
        return union_ns(zip(start[here].tolist(), stop[here].tolist(), strict=True))

    computing, talking, working = covered(~talks), covered(talks), covered(talks | ~talks)
    return Split(
        call=use.call,
        length_us=(end - begin) / 1000,
        compute_us=(working - talking) / 1000,
        communication_us=(working - computing) / 1000,
        both_us=(computing + talking - working) / 1000,
        idle_us=(end - begin - working) / 1000,
    )


def communicates(trace: Trace) -> NDArray[np.bool_]:
    """For each kind of the trace whether it is device work that communicates."""
    return flags(trace, lambda kind: kind.category in DEVICE_WORK and category_of(decode(kind.name)) == "communication")
