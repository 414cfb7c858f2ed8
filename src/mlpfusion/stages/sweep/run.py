"""Measures a study: plans it, keeps what is finished, and hands the rest to the workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from mlpfusion.environment import conditions
from mlpfusion.errors import UsageError
from mlpfusion.stages.sweep import cells, folder, local, plan
from mlpfusion.stages.sweep.ledger import Ledger
from mlpfusion.storage import results
from mlpfusion.storage.redacted import redacted
from mlpfusion.workers import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.choice import Conditions
    from mlpfusion.records.profile import HostClocks
    from mlpfusion.records.sweep.study import Kept, Study
    from mlpfusion.stages.sweep.cells import Shard
    from mlpfusion.stages.sweep.slots import Slot
    from mlpfusion.stages.sweep.study import Definition

FOLDER: Final = "sweeps"
HOST_CLOCKS: Final = ("exclusive", "shared")


class Places(Protocol):
    """Where cells are measured: on this host, or on a cluster."""

    @property
    def devices(self) -> Sequence[Device]:
        """The device of each worker."""
        ...

    def holds(self, backends: Sequence[str], earlier: Sequence[Conditions]) -> Conditions:
        """The conditions there; of several, those that an earlier run of the study had."""
        ...

    def run(self, ledger: Ledger, host_clocks: HostClocks, tell: Callable[[str], None]) -> None:
        """Measure all cells that wait."""
        ...


class Host(NamedTuple):
    """This host, with a worker for each slot."""

    slots: Sequence[Slot]

    @property
    def devices(self) -> Sequence[Device]:
        """The device of each slot."""
        return [each.device for each in self.slots]

    def holds(self, backends: Sequence[str], earlier: Sequence[Conditions]) -> Conditions:
        """Those of this process."""
        return conditions.conditions(self.slots[0].device, backends)

    def run(self, ledger: Ledger, host_clocks: HostClocks, tell: Callable[[str], None]) -> None:
        """Measure all cells that wait and have a slot."""
        local.run(ledger, self.slots, host_clocks=host_clocks, tell=tell)


def sweep(
    study: Definition,
    places: Places,
    *,
    out: Path,
    shard: Shard | None = None,
    fresh: bool = False,
    host_clocks: HostClocks = "exclusive",
    tell: Callable[[str], None] = lambda said: None,
) -> Study:
    """Measure what of a study is not finished in its folder; the same call goes on where it stopped.

    Raises:
        UsageError: no backend takes a model; the folder is another study's, another driver's, or of other versions.
        MlpfusionError: no worker is left, or a result cannot be written.
    """
    if not places.devices:
        raise UsageError("no device is here to measure on")
    before = _there(out)
    nodes = [] if before is None or fresh else list(before.nodes.values())
    holds = redacted(places.holds(study.settings.backends, nodes))
    planned = plan.plan(study, places.devices, _cells(study, before))
    with interrupts.stoppable(), folder.held(out):
        ledger = Ledger(study, planned, holds, out=out, shard=shard, fresh=fresh, host_clocks=host_clocks, tell=tell)
        places.run(ledger, host_clocks, tell)
        return ledger.record


def folder_of(study: Definition, out: Path | None, shard: Shard | None) -> Path:
    """Where a study is kept: below `sweeps`, by its name, unless a folder is given; each shard in a folder in that."""
    found = Path(FOLDER) / study.name if out is None else out
    return found if shard is None else found / f"shard-{shard.number}-of-{shard.parts}"


def earlier(study: Definition, out: Path) -> tuple[Kept, ...]:
    """The cells that an earlier run left in a folder, if it asked the same of each; nothing is changed there."""
    return _cells(study, _there(out))


def _cells(study: Definition, found: Study | None) -> tuple[Kept, ...]:
    """The cells of an earlier run, if it asked the same of each."""
    asked = cells.asked_of_all(redacted(study.settings))
    return found.cells if found is not None and cells.asked_of_all(found.settings) == asked else ()


def _there(out: Path) -> Study | None:
    """The study that an earlier run left in a folder."""
    path = out / folder.STUDY_NAME
    if not path.exists():
        return None
    try:
        return results.load_study(path)
    except UsageError:  # a run makes it again from the cells
        return None
