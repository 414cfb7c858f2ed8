"""Adds the clocks to a row: the kernel clock from its trace, the other three from the race."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.records.clocks import L2, Bound, Clocks, Samples
from mlpfusion.records.profile import BASELINE
from mlpfusion.stats import summarise

if TYPE_CHECKING:
    from mlpfusion.device import Device
    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Analysis, PreOps, Row
    from mlpfusion.workers.tasks import Raced

RACED: Final = ("wall_us", "event_us", "graph_us")


def before_the_race(backend: str, analysis: Analysis, device: Device, *, failed: bool = False) -> Clocks:
    """The kernel clock, and why the other three are not there yet."""
    l2: L2 = "cold" if device.kind == "cuda" else "unknown"
    reason = "not raced: the row failed" if failed else "not raced yet"
    kernel = summarise(Samples(backend=backend, clock="kernel_us", l2=l2, values=analysis.kernel_us))
    reasons = dict.fromkeys(RACED, reason)
    if kernel.median == 0:  # no ratio to it exists
        return Clocks(reasons={**reasons, "kernel_us": "in the trace its kernels take no time"})
    return Clocks(kernel_us=kernel, reasons=reasons)


def after_the_race(row: Row, raced: Raced, device: Device) -> Row:
    """The row with its clocks, what bounds it, and the profiler's inflation; failed if its window was disturbed."""
    mine = {series.clock: series for series in raced.samples if series.backend == row.backend}
    base = {series.clock: series for series in raced.samples if series.backend == BASELINE}
    found = {clock: summarise(mine[clock], base.get(clock)) for clock in RACED if clock in mine}
    reasons = {clock: _missing(clock, row.backend, raced, device) for clock in RACED if clock not in mine}
    kernel = row.clocks.kernel_us if row.clocks else None
    host, idle = summarise(mine["host_us"]), summarise(mine["idle_host_us"])
    clocks = Clocks(kernel_us=kernel, reasons=reasons, neighbours=raced.neighbours, **found)
    changed = msgspec.structs.replace(
        row, clocks=clocks, bound=_bound(clocks, host, device), pre_ops=_inflation(row.pre_ops, idle.median)
    )
    wrong = raced.invalid.get(row.backend) or _too_fast(row, clocks, device)
    return msgspec.structs.replace(changed, status="failed", reason=wrong) if wrong else changed


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
