"""Measures the collectives of a call: their time, what of it nothing else hides, their bytes and bus bandwidth."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.records.breakdown import Collective, CollectiveRun
from mlpfusion.trace.analysis.communication.messages import Parameters, bus_factor, operation_of, parameters_of
from mlpfusion.trace.analysis.spans import union, within
from mlpfusion.trace.analysis.split import communicates
from mlpfusion.trace.calls.busy import device_rows
from mlpfusion.trace.names.decode import decode
from mlpfusion.trace.read.columns import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.analysis.kernels import Analysed
    from mlpfusion.trace.calls.call import Calls
    from mlpfusion.trace.read.kineto import Trace

_RUNS: Final = 2000


class _Run(NamedTuple):
    """One collective: its call, its row, what it does, its time and the part that nothing hides, in ns."""

    call: int
    row: int
    parameters: Parameters
    ns: int
    exposed_ns: int


def collectives_of(calls: Calls, found: Analysed) -> tuple[tuple[Collective, ...], tuple[CollectiveRun, ...]]:
    """The collectives of the calls used, by operation, type and group, and each one for itself."""
    used = found.used
    talks = communicates(calls.trace)
    if not talks.any():
        return (), ()
    runs = _runs(calls, used, [kernel.op for kernel in found.launched], talks)
    groups: dict[tuple[object, ...], list[_Run]] = defaultdict(list)
    for run in runs:
        groups[run.parameters[:4]].append(run)
    together = sorted((_together(group, len(used)) for group in groups.values()), key=lambda one: -one.us)
    numbers = _numbers(calls.trace, talks)
    listed = [
        CollectiveRun(
            call=run.call,
            operation=run.parameters.operation,
            key=_key(run.parameters, numbers[run.row]),
            start_ns=int(calls.trace.start[run.row]),
            us=run.ns / 1000,
            exposed_us=run.exposed_ns / 1000,
        )
        for run in runs[:_RUNS]
    ]
    return tuple(together), tuple(listed)


def _runs(calls: Calls, used: Sequence[int], operators: Sequence[str | None], talks: NDArray[np.bool_]) -> list[_Run]:
    """The collectives of the calls used on the main device, in the order of their launches.

    `operators` are those around the launches of a call.
    """
    import numpy as np

    trace = calls.trace
    device = device_rows(calls)
    others = device[~talks[trace.kind[device]]]
    computing = union(trace.start[others], trace.start[others] + trace.duration[others])
    messages = _Messages(trace)
    found = []
    for call in used:
        bounds = slice(calls.work.bounds[call], calls.work.bounds[call + 1])
        rows, launches = calls.work.rows[bounds], calls.launched_by[bounds]
        here = talks[trace.kind[rows]] & np.isin(rows, device)
        around = [operators[position] for position in np.flatnonzero(here).tolist()]
        rows, launches = rows[here], launches[here]
        ends = trace.start[rows] + trace.duration[rows]
        hidden = within(computing, trace.start[rows], ends)
        made_by = [messages.around(launch) for launch in launches.tolist()]
        several = Counter(made_by)
        columns = (rows.tolist(), made_by, trace.duration[rows].tolist(), hidden.tolist(), around)
        for row, maker, ns, hidden_ns, operator in zip(*columns, strict=True):
            # The arguments of an operator that launches several kernels are those of all together.
            said = messages.of(row, maker) if maker is None or several[maker] == 1 else None
            found.append(_Run(call, row, said or _by_name(trace, row, operator), ns, ns - hidden_ns))
    return found


class _Messages:
    """Finds the arguments of a collective: its kernel's own, or those of the operator around its launch."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._around: dict[int, list[int]] = defaultdict(list)  # rows of such operators by thread, in time order
        for row in sorted(trace.messages):
            if trace.kinds[trace.kind[row]].name == PARAMETERS:
                self._around[int(trace.place[row])].append(row)
        self._starts = {place: trace.start[rows].tolist() for place, rows in self._around.items()}

    def around(self, launch: int) -> int | None:
        """The row of the operator with arguments around a launch."""
        place, at = int(self._trace.place[launch]), int(self._trace.start[launch])
        before = bisect_right(self._starts.get(place, []), at) - 1
        if before < 0:
            return None
        row = self._around[place][before]
        return row if at < self._trace.start[row] + self._trace.duration[row] else None

    def of(self, row: int, operator: int | None) -> Parameters | None:
        """The arguments of a kernel, which this operator launched."""
        messages = self._trace.messages
        told = row if row in messages else operator
        return parameters_of(messages[told]) if told is not None else None


def _by_name(trace: Trace, row: int, operator: str | None) -> Parameters:
    """What a kernel's name says, or else the operator that launched it."""
    decoded = decode(trace.kinds[trace.kind[row]].name)
    operation = decoded.fused_ops[0] if decoded.fused_ops else operation_of(operator or "") or "communication"
    return Parameters(operation, decoded.dtype, None, None, None, None)


def _together(runs: Sequence[_Run], calls: int) -> Collective:
    """The collectives of one kind: medians over calls, and what their sizes give."""
    times: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for run in runs:
        times[run.call][0] += run.ns
        times[run.call][1] += run.exposed_ns
    first = runs[0].parameters
    sizes = [run.parameters.size for run in runs]
    known = [size for size in sizes if size is not None]
    whole = sum(known) if len(known) == len(sizes) else None
    factor, ns = bus_factor(first.operation, first.group_size), sum(run.ns for run in runs)
    return Collective(
        operation=first.operation,
        count=round(len(runs) / calls),
        us=median(time for time, _ in times.values()) / 1000,
        exposed_us=median(exposed for _, exposed in times.values()) / 1000,
        dtype=first.dtype,
        group=first.group,
        group_size=first.group_size,
        bytes=round(whole / calls) if whole is not None else None,
        bus_gb_s=factor * whole / ns if factor and whole is not None and ns else None,
    )


def _numbers(trace: Trace, talks: NDArray[np.bool_]) -> dict[int, int]:
    """For each collective of the trace how many kernels of its name ran before it."""
    import numpy as np

    before: Counter[int] = Counter()
    found = {}
    rows = np.flatnonzero(talks[trace.kind])
    for row, kind in zip(rows.tolist(), trace.kind[rows].tolist(), strict=True):
        found[row] = before[kind]
        before[kind] += 1
    return found


def _key(parameters: Parameters, number: int) -> str:
    if parameters.group is not None and parameters.sequence is not None:
        return f"{parameters.group}:{parameters.sequence}"
    return f"{parameters.operation}#{number}"
