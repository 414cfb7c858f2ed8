"""Plans a study on the devices that are here: cells, those that are refused and why, and how long the rest takes."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion import backend as registry
from mlpfusion.errors import UsageError
from mlpfusion.stages.choose import run as choose
from mlpfusion.stages.profile import run as profile
from mlpfusion.stages.profile.plan import planned
from mlpfusion.stages.sweep import cells

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from mlpfusion.device import Device
    from mlpfusion.records.sweep.cells import Cell, Settings
    from mlpfusion.records.sweep.study import Kept
    from mlpfusion.spec import MLPSpec
    from mlpfusion.stages.sweep.cells import Shard
    from mlpfusion.stages.sweep.study import Definition

# A cell of 11 backends took 49 to 90 s on an H200 (bench/results/h200-choose-article and h200-choose-gemma-2b: the
# times at which its rows were begun). Further processes of a race are fresh ones, which bind and compile again.
BACKEND_S: Final = 6.0
_ASSUMED: Final = f"assuming {BACKEND_S:g} s a backend, as on an H200"


MEASURED: Final = "to measure"
FINISHED: Final = "finished"


class Planned(NamedTuple):
    """A cell, why it cannot be measured here or None, and whether it waits for another kind of GPU."""

    cell: Cell
    refused: str | None = None
    away: bool = False


class Estimate(NamedTuple):
    """How long cells take one after the other, in seconds, and what says so."""

    seconds: float
    source: str


def plan(study: Definition, here: Sequence[Device]) -> tuple[Planned, ...]:
    """All cells of a study on these devices; one that does not fit, or has no card here, is there with its reason.

    Raises:
        UsageError: no backend takes the sizes of a model; the message has its line.
    """
    kinds = study.settings.gpus or tuple(dict.fromkeys(kind_of(each) for each in here))
    by_kind = {kind: [each for each in here if is_kind(kind, each)] for kind in kinds}
    for kind, devices in by_kind.items():
        if devices:
            _check_taken(study, kind, devices[0])
    return tuple(_planned(cell, study.settings, by_kind[cell.gpu]) for cell in cells.product(study.work, kinds))


def state(each: Planned, settings: Settings, shard: Shard | None, finished: Set[Cell] = frozenset()) -> str:
    """What becomes of a cell: whether it is measured, refused and why, left to somebody else, or `finished`."""
    if shard is not None and not shard.has(settings, each.cell):
        return "of another shard"
    if each.cell in finished:
        return FINISHED
    if each.away:
        return f"waiting: {each.refused}"
    return MEASURED if each.refused is None else f"refused: {each.refused}"


def kind_of(device: Device) -> str:
    """The kind of a device that a study does not name: its name, and cpu for any processor."""
    return "cpu" if device.kind == "cpu" else device.name


def is_kind(kind: str, device: Device) -> bool:
    """Whether a device is of a kind as a study names it."""
    if "cpu" in (kind, device.kind):
        return kind == device.kind
    return choose.is_card(kind, device.name)


def _planned(cell: Cell, settings: Settings, devices: Sequence[Device]) -> Planned:
    if not devices:
        return Planned(cell, f"no {cell.gpu} is here", away=True)
    try:
        profile.check_memory(cell.work.workload, devices[0], len(settings.backends))
    except UsageError as error:
        return Planned(cell, str(error))
    return Planned(cell)


def _check_taken(study: Definition, kind: str, device: Device) -> None:
    """Raise a UsageError for an MLP that every backend refuses; third-party ones are asked in their workers alone."""
    done: set[MLPSpec] = set()
    for work in study.work:
        spec = work.workload.spec
        if spec in done:
            continue
        done.add(spec)
        reasons = {}
        for name in study.settings.backends:
            found = planned(name, spec, device) if registry.is_built_in(name) and not registry.of_a_file(name) else None
            if found is None or found.reason is None or found.status != "unavailable":
                break
            reasons[name] = found.reason
        else:
            said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            line = study.lines.get(work.of[0].model, 1)
            raise UsageError(f"study {study.name!r}, line {line}: no backend takes {work.of[0]} on {kind}: {said}")


# ---- time ------------------------------------------------------------------------------------------------------------


def longest_first(found: Sequence[Cell]) -> list[Cell]:
    """Cells in the order in which they are handed out: the last one that ends is then a short one."""
    return sorted(found, key=lambda cell: (-cell.work.workload.flops, cells.title(cell)))


def estimate(number: int, settings: Settings, kept: Sequence[Kept] = ()) -> Estimate:
    """The time that `number` more cells take, from those that are finished if any is."""
    taken = [each.attempts[-1].seconds for each in kept if each.state == "finished" and each.attempts]
    known = [seconds for seconds in taken if seconds is not None]
    if known:
        source = f"by the median of the {len(known)} cell{'s' if len(known) > 1 else ''} finished so far"
        return Estimate(number * statistics.median(known), source)
    return Estimate(number * len(settings.backends) * settings.processes * BACKEND_S, _ASSUMED)
