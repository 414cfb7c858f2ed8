"""Adds the clocks to a row: the kernel clock from its trace, the other three from the race."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.records.clocks import L2, Bound, Clocks, Samples
from mlpfusion.records.profile import BASELINE
from mlpfusion.stats import of_processes, summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.environment import Process
    from mlpfusion.records.profile import Analysis, PreOps, Row
    from mlpfusion.workers.tasks import Raced

RACED: Final = ("wall_us", "event_us", "graph_us")
_NOT_YET: Final = "not raced yet"
_FAILED: Final = "not raced: the row failed"
KERNEL: Final = "kernel_us"  # of a trace that a process of the race took


def before_the_race(backend: str, analysis: Analysis, device: Device, *, failed: bool = False) -> Clocks:
    """The kernel clock, and why the other three are not there yet."""
    l2: L2 = "cold" if device.kind == "cuda" else "unknown"
    reason = _FAILED if failed else _NOT_YET
    kernel = summarise(Samples(backend=backend, clock="kernel_us", l2=l2, values=analysis.kernel_us))
    reasons = dict.fromkeys(RACED, reason)
    if kernel.median == 0:  # no ratio to it exists
        return Clocks(reasons={**reasons, "kernel_us": "in the trace its kernels take no time"})
    return Clocks(kernel_us=kernel, reasons=reasons)


def after_the_race(row: Row, raced: Sequence[Raced], device: Device, processes: Sequence[Process] = ()) -> Row:
    """The row with its clocks, what bounds it, and the profiler's inflation; failed if its window was disturbed.

    `raced` are the answers of one process or more, `row` is what it was before the first, and `processes` are what is
    known of them.
    """
    mine, base = _series(row.backend, raced), _series(BASELINE, raced)
    found = {clock: of_processes(mine[clock], base.get(clock)) for clock in RACED if clock in mine}
    reasons = {clock: _missing(clock, row.backend, raced[-1], device) for clock in RACED if clock not in mine}
    kernel = row.clocks.kernel_us if row.clocks else None
    if any(value is not None for series in mine.get(KERNEL, ()) for value in series.values):
        kernel = of_processes(mine[KERNEL])
    host, idle = of_processes(mine["host_us"]), of_processes(mine["idle_host_us"])
    loads = [each.neighbours for each in raced if each.neighbours is not None]
    clocks = Clocks(kernel_us=kernel, reasons=reasons, neighbours=max(loads, default=None), **found)
    others = [number for number, each in enumerate(processes, 1) if row.backend in each.kernels]
    changed = msgspec.structs.replace(
        row,
        clocks=clocks,
        bound=_bound(clocks, host, device),
        pre_ops=_inflation(row.pre_ops, idle.median),
        notes=(*row.notes, *[_other_kernels(number, len(processes)) for number in others]),
    )
    wrong = _disturbed(row.backend, raced) or _too_fast(row, clocks, device)
    return msgspec.structs.replace(changed, status="failed", reason=wrong) if wrong else changed


def unraced(row: Row) -> Row:
    """A row of an earlier run as it was before its race: the processes of that are none of this run's."""
    clocks = row.clocks
    if clocks is None or not any(getattr(clocks, name) for name in RACED):
        return row
    reasons = dict.fromkeys(RACED, _FAILED if row.status == "failed" else _NOT_YET)
    kernel = clocks.kernel_us
    if kernel is not None and len(kernel.rounds) > 1:
        kernel, reasons[KERNEL] = None, "measured in processes of an earlier race"
    return msgspec.structs.replace(row, clocks=Clocks(kernel_us=kernel, reasons=reasons), bound=None)


def _series(backend: str, raced: Sequence[Raced]) -> dict[str, list[Samples]]:
    """Each clock of a backend by process; a process that it was not in has the rounds of that process and no time."""
    found: dict[str, list[Samples]] = {}
    for clock in dict.fromkeys(series.clock for each in raced for series in each.samples if series.backend == backend):
        for each in raced:
            of_clock = [series for series in each.samples if series.clock == clock] or [*each.samples]
            mine = [series for series in of_clock if series.backend == backend and series.clock == clock]
            found.setdefault(clock, []).append(mine[0] if mine else _absent(backend, clock, of_clock[0]))
    return found


def _absent(backend: str, clock: str, other: Samples) -> Samples:
    return Samples(backend=backend, clock=clock, l2=other.l2, values=(None,) * len(other.values))


def _disturbed(backend: str, raced: Sequence[Raced]) -> str | None:
    """What happened in a backend's window, and in which process where there are several."""
    for number, each in enumerate(raced, 1):
        if backend in each.invalid:
            return each.invalid[backend] + (f", in process {number}" if len(raced) > 1 else "")
    return None


def _other_kernels(number: int, processes: int) -> str:
    return f"process {number} of {processes} ran other kernels, or in another order: `processes` in the result has them"


def _missing(clock: str, backend: str, raced: Raced, device: Device) -> str:
    if device.kind == "cpu":
        return "the CPU has no device events" if clock == "event_us" else "CUDA graphs need a GPU"
    return raced.no_graph.get(backend, "not sampled")


def _bound(clocks: Clocks, host: Clock, device: Device) -> Bound | None:
    """Host against device time of one call; None on a CPU run, where they are one."""
    timed = clocks.graph_us or clocks.kernel_us
    if device.kind == "cpu" or timed is None:
        return None
    return Bound(
        by="cpu" if host.median > timed.median else "gpu",
        margin=max(host.median, timed.median) / min(host.median, timed.median),
        host_us=host.median,
        device_us=timed.median,
        n=host.n,
        host_p20_us=host.p20,
        host_p80_us=host.p80,
    )


def _inflation(pre_ops: PreOps | None, host_us: float) -> PreOps | None:
    """Traced over untraced host time, both of a call that finds the device idle."""
    if pre_ops is None or pre_ops.host_us is None:
        return pre_ops
    return msgspec.structs.replace(pre_ops, profiler_inflation=pre_ops.host_us / host_us)


def _too_fast(row: Row, clocks: Clocks, device: Device) -> str | None:
    """A row that would have to move its minimum bytes faster than the card can is a fault of the measurement."""
    timed: Clock | None = clocks.graph_us or clocks.event_us
    if device.peaks is None or timed is None or row.traffic is None:
        return None
    rate = row.traffic.minimum_bytes / (timed.median * 1e-6)
    if rate <= device.peaks.bandwidth:
        return None
    return (
        f"measured faster than the memory can be: {rate / 1e9:.0f} GB/s for the least bytes a call moves, "
        f"where {device.peaks.source} says {device.peaks.bandwidth / 1e9:.0f} GB/s"
    )
