"""Lists the device work of a traced call in launch order, for the alignment with a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.records.traffic import DeviceWork
from mlpfusion.trace.analysis.kernels import analyse_calls
from mlpfusion.trace.calls.link import annotated, find_calls
from mlpfusion.trace.calls.select import CALL
from mlpfusion.trace.names.decode import decode

if TYPE_CHECKING:
    from mlpfusion.device import DeviceKind
    from mlpfusion.records.profile import Analysis
    from mlpfusion.trace.analysis.kernels import Analysed
    from mlpfusion.trace.calls.call import Calls
    from mlpfusion.trace.read.kineto import Trace


def analyse_work(trace: Trace, *, call: str = CALL, device: DeviceKind) -> tuple[Analysis, tuple[DeviceWork, ...]]:
    """The analysis of a trace, and the device work of one of its calls in launch order."""
    calls = find_calls(trace, annotated(trace, call), device)
    analysed = analyse_calls(calls, device)
    return analysed.analysis, _device_work(calls, analysed)


def _device_work(calls: Calls, analysed: Analysed) -> tuple[DeviceWork, ...]:
    """Every piece of work of a call like those that were analysed."""
    place = {position: index for index, position in enumerate(analysed.order)}
    numbers: dict[tuple[object, int, str], int] = {}
    found = []
    for position, item in enumerate(calls.call(analysed.used[0]).work):
        own = (item.event,) if item.event is item.launch else ()  # on a CPU the work is an operator itself
        ops = [(event.name, (event.tid, event.start_ns, event.name)) for event in (*own, *item.owners)]
        found.append(
            DeviceWork(
                name=item.event.name,
                kernel=place[position],
                kind=decode(item.event.name).kind,
                ops=tuple((name, numbers.setdefault(key, len(numbers))) for name, key in ops),
                replayed="GraphLaunch" in item.launch.name,
            )
        )
    return tuple(found)
