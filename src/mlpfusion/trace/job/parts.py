"""Separates the processes of a trace that was merged from several ranks, by the devices that each used."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mlpfusion.trace.calls.call import is_launch
from mlpfusion.trace.calls.link import rows_of
from mlpfusion.trace.read.chrome import DEVICE_WORK
from mlpfusion.trace.read.columns import Frames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.read.kineto import Trace

    Id = int | str


class Part(NamedTuple):
    """The trace of one process, and the devices that it used; no process where the trace is whole.

    `assumed` says that which process used which device is not in the trace: they are paired in their order.
    """

    trace: Trace
    process: Id | None = None
    devices: tuple[Id, ...] = ()
    assumed: bool = False


def parts(trace: Trace) -> tuple[Part, ...]:
    """One part for each process of a trace that launched work on devices of its own, in the order of the devices.

    A device belongs to the process whose launches explain most of its work, by correlation and time. Where that does
    not part all devices among all processes, two that share a device say, the trace stays whole.
    """
    import numpy as np

    launches = rows_of(trace, lambda kind: kind.category == "api" and is_launch(kind.name))
    work = rows_of(trace, lambda kind: kind.category in DEVICE_WORK)
    launches, work = (rows[trace.correlation[rows] != 0] for rows in (launches, work))
    process = np.array([place.pid for place in trace.places] or [0], dtype=object)
    hosts = sorted(set(process[np.unique(trace.place[launches])].tolist()), key=_order)
    devices = sorted(set(process[np.unique(trace.place[work])].tolist()), key=_order)
    if len(hosts) < 2 or len(devices) < 2:
        return (Part(trace),)
    explained = {
        host: _explained(trace, launches[_of(trace, process, launches, host)], work, process) for host in hosts
    }
    hosts = [host for host in hosts if explained[host]]
    owners, assumed = _owners(hosts, devices, explained)
    if not owners or len(hosts) < 2:
        return (Part(trace),)
    return tuple(_part(trace, process, host, owners, assumed=assumed) for host in _by_device(owners))


def _order(one: Id) -> tuple[bool, int, str]:
    return isinstance(one, str), one if isinstance(one, int) else 0, str(one)


def _of(trace: Trace, process: NDArray[np.object_], rows: NDArray[np.int64], host: Id) -> NDArray[np.bool_]:
    return (process == host)[trace.place[rows]]  # type: ignore[no-any-return]


def _explained(
    trace: Trace, launches: NDArray[np.int64], work: NDArray[np.int64], process: NDArray[np.object_]
) -> dict[Id, int]:
    """By device how much of its work one process's launches explain: one of its correlation, no later than it."""
    import numpy as np

    ids, first = np.unique(trace.correlation[launches], return_index=True)
    at = np.minimum(np.searchsorted(ids, trace.correlation[work]), len(ids) - 1)
    good = (ids[at] == trace.correlation[work]) & (trace.start[launches[first[at]]] <= trace.start[work])
    found: dict[Id, int] = {}
    counts = np.bincount(trace.place[work[good]], minlength=len(trace.places))
    for number in np.flatnonzero(counts).tolist():
        device = process[number]
        found[device] = found.get(device, 0) + int(counts[number])
    return found


def _owners(
    hosts: Sequence[Id], devices: Sequence[Id], explained: Mapping[Id, Mapping[Id, int]]
) -> tuple[dict[Id, Id], bool]:
    """The process of each device, or nothing where a process would have none; and whether their order was needed."""
    owners: dict[Id, Id] = {}
    open_: list[Id] = []
    for device in devices:
        counts = {host: explained[host].get(device, 0) for host in hosts}
        best = [host for host, count in counts.items() if count and count == max(counts.values())]
        if len(best) == 1:
            owners[device] = best[0]
        elif best:
            open_.append(device)
    left = [host for host in hosts if host not in owners.values()]
    if len(left) != len(open_):
        return {}, False
    owners.update(zip(open_, left, strict=True))
    return owners, len(open_) > 1


def _by_device(owners: Mapping[Id, Id]) -> list[Id]:
    """The processes in the order of their first devices."""
    return list(dict.fromkeys(owners[device] for device in sorted(owners, key=_order)))


def _part(trace: Trace, process: NDArray[np.object_], host: Id, owners: Mapping[Id, Id], *, assumed: bool) -> Part:
    """The events of one process and its devices, and those of places that are neither a process's nor a device's."""
    import numpy as np

    devices = tuple(device for device in sorted(owners, key=_order) if owners[device] == host)
    others = {*owners, *owners.values()} - {host, *devices}
    mine = np.array([one not in others for one in process.tolist()], dtype=np.bool_)
    rows = np.flatnonzero(mine[trace.place])
    places = np.cumsum(mine[trace.place]) - 1
    moved = {row: int(places[row]) for row in trace.messages if mine[trace.place[row]]}
    frames = trace.frames
    framed = mine[frames.place]
    part = trace._replace(
        start=trace.start[rows],
        duration=trace.duration[rows],
        kind=trace.kind[rows],
        place=trace.place[rows],
        correlation=trace.correlation[rows],
        frames=Frames(frames.start[framed], frames.duration[framed], frames.kind[framed], frames.place[framed]),
        inputs=trace.inputs.kept(mine[trace.place]) if trace.inputs is not None else None,
        messages={moved[row]: message for row, message in trace.messages.items() if row in moved},
        integrity=msgspec.structs.replace(trace.integrity, events=len(rows)),
    )
    return Part(part, host, devices, assumed)
