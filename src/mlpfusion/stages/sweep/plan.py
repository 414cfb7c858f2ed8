"""Plans a study on the devices that are here: cells, those that are refused and why, and how long the rest takes."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion import backend as registry
from mlpfusion import units
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
    from mlpfusion.spec import MLPSpec, Mode
    from mlpfusion.stages.sweep.cells import Shard
    from mlpfusion.stages.sweep.study import Definition

# A cell of 11 backends took 49 to 92 s on an H200 in inference, 61 s in the middle (bench/results/h200-choose-article
# and h200-choose-gemma-2b: the times at which cells were begun). One in training took 125 s, timed once and in no file:
# the first call of compile-max-autotune had 63 of them. Further processes of a race are fresh ones, which bind and
# compile again.
BACKEND_S: Final = 4.0
TUNED: Final = "compile-max-autotune"
TUNING_S: Final[dict[Mode, float]] = {"inference": 15.0, "training": 60.0}


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


def plan(study: Definition, here: Sequence[Device], earlier: Sequence[Kept] = ()) -> tuple[Planned, ...]:
    """All cells of a study on these devices; one that does not fit, or has no card here, is there with its reason.

    A study that names no kinds of GPU has those that are here, and those of which earlier runs have finished cells.

    Raises:
        UsageError: no backend takes the sizes of a model; the message has its line.
    """
    then = [each.cell.gpu for each in earlier if each.state == FINISHED]
    kinds = study.settings.gpus or tuple(dict.fromkeys([*map(kind_of, here), *then]))
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


def estimate(left: Sequence[Cell], settings: Settings, kept: Sequence[Kept] = ()) -> Estimate:
    """The time that more cells take, from those of their mode and kind of GPU that are finished, if any is."""
    taken: dict[tuple[str, Mode], list[float]] = {}
    for each in kept:
        seconds = each.attempts[-1].seconds if each.state == "finished" and each.attempts else None
        if seconds is not None:
            taken.setdefault(_alike(each.cell), []).append(seconds)
    asked = {_alike(cell) for cell in left}
    known = {alike: statistics.median(taken[alike]) for alike in asked if alike in taken}
    sources = []
    if known:
        number = sum(len(taken[alike]) for alike in known)
        sources.append(f"by the median of the {number} cell{'s' if number > 1 else ''} finished so far")
    if len(known) < len(asked) or not asked:
        sources.append(_assumed(settings, {mode for gpu, mode in asked - known.keys()}))
    assumed = {alike: _assumed_s(settings, alike[1]) for alike in asked}
    whole = sum({**assumed, **known}[_alike(cell)] for cell in left)
    return Estimate(whole, ", the others ".join(sources))


def said(done: int, total: int, left: Estimate, workers: int) -> str:
    """How far a run is: `2 of 5 cells, about 3 min left`."""
    cells_of = f"{done} of {total} cells"
    return cells_of if done == total else f"{cells_of}, about {units.duration(left.seconds / max(workers, 1))} left"


def _alike(cell: Cell) -> tuple[str, Mode]:
    return cell.gpu, cell.work.workload.mode


def _assumed_s(settings: Settings, mode: Mode) -> float:
    tuning_s = TUNING_S[mode] if TUNED in settings.backends else 0.0
    return (len(settings.backends) * BACKEND_S + tuning_s) * settings.processes


def _assumed(settings: Settings, modes: Set[Mode]) -> str:
    tuning = [f"{TUNING_S[mode]:g} s more in {mode}" for mode in TUNING_S if mode in modes]
    more = f", {TUNED} {' and '.join(tuning)}" if tuning and TUNED in settings.backends else ""
    return f"assuming {BACKEND_S:g} s a backend{more}, as on an H200"
