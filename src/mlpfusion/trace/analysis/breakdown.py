"""Says where the time of a call went: one record of what the other analyses find."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from mlpfusion.records.breakdown import Breakdown
from mlpfusion.trace.analysis.categories import by_category, overlaps
from mlpfusion.trace.analysis.communication.collectives import collectives_of
from mlpfusion.trace.analysis.idling.causes import causes_of
from mlpfusion.trace.analysis.idling.queue import queue_of
from mlpfusion.trace.analysis.mlps import mlp_share
from mlpfusion.trace.analysis.rates import rates_of
from mlpfusion.trace.analysis.split import split_of

if TYPE_CHECKING:
    from mlpfusion.records.trace import DeviceUse
    from mlpfusion.trace.analysis.kernels import Analysed
    from mlpfusion.trace.calls.call import Calls
    from mlpfusion.trace.calls.waits import Waits


def breakdown_of(calls: Calls, found: Analysed, use: DeviceUse | None, waited: Waits) -> Breakdown:
    """Where the time of a call went.

    `use` is how the device spent one, None on a CPU, and `waited` in which API calls the host waits.
    """
    categories = by_category(found.analysis.kernels)
    kernel_us = sum(one.us for one in categories)
    host = found.analysis.host_us
    call_us = use.length_us if use else median(host) if host else 0.0
    collectives, runs = collectives_of(calls, found) if use else ((), ())
    return Breakdown(
        kernel_us=kernel_us,
        categories=categories,
        overlapping=use is not None and overlaps(found.analysis, kernel_us),
        idle=causes_of(calls, use, waited) if use else None,
        queue=queue_of(calls, found.used) if use else None,
        mlp=mlp_share(found.work, found.launched, kernel_us=kernel_us, call_us=call_us),
        rates=rates_of(found.work, found.launched, calls.trace.gpu if use else None),
        collectives=collectives,
        collective_runs=runs,
        split=split_of(calls, use) if use else None,
    )
