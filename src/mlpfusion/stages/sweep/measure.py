"""Measures one cell: a profile of its workload, wherever it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlpfusion.device import DeviceKind
from mlpfusion.records.base import Record
from mlpfusion.records.profile import HostClocks
from mlpfusion.spec import Workload
from mlpfusion.stages.profile import run
from mlpfusion.storage.redacted import redacted

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.records.profile import Profile
    from mlpfusion.records.sweep.cells import Cell, Settings


class Order(Record, frozen=True, kw_only=True):
    """A cell as a worker gets it; JSON both ways."""

    workload: Workload
    backends: tuple[str, ...]
    rounds: int
    processes: int
    counters: bool
    time_limit_s: float
    device: DeviceKind
    host_clocks: HostClocks


def order(cell: Cell, settings: Settings, device: DeviceKind, host_clocks: HostClocks) -> Order:
    """The order of a cell."""
    return Order(
        workload=cell.work.workload,
        backends=settings.backends,
        rounds=settings.rounds,
        processes=settings.processes,
        counters=settings.counters,
        time_limit_s=settings.time_limit_s,
        device=device,
        host_clocks=host_clocks,
    )


def measure(asked: Order, tell: Callable[[run.Progress], None]) -> Profile:
    """The profile of a cell; its backends race together on the one device of this process.

    Raises:
        MlpfusionError: it cannot be measured here.
    """
    found = run.profile(
        asked.workload,
        backends=asked.backends,
        device=asked.device,
        rounds=asked.rounds,
        processes=asked.processes,
        time_limit_s=asked.time_limit_s,
        counters=asked.counters,
        on_event=tell,
    )
    return redacted(replace(found, host_clocks=asked.host_clocks))


def limit_s(asked: Order) -> float:
    """How long a cell may take before its worker counts as hung: what each of its steps may, and some."""
    steps = len(asked.backends) * (2 + asked.processes + (3 if asked.counters else 0))
    return asked.time_limit_s * steps + 300
