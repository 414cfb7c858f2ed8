"""Measures a study: plans it, keeps what is finished, and hands the rest to the workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion.environment import conditions
from mlpfusion.errors import UsageError
from mlpfusion.stages.sweep import folder, local, plan
from mlpfusion.stages.sweep.ledger import Ledger
from mlpfusion.storage import results
from mlpfusion.workers import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.records.profile import HostClocks
    from mlpfusion.records.sweep.study import Kept, Study
    from mlpfusion.stages.sweep.cells import Shard
    from mlpfusion.stages.sweep.slots import Slot
    from mlpfusion.stages.sweep.study import Definition

FOLDER: Final = "sweeps"
HOST_CLOCKS: Final = ("exclusive", "shared")


def sweep(
    study: Definition,
    slots: Sequence[Slot],
    *,
    out: Path,
    shard: Shard | None = None,
    fresh: bool = False,
    host_clocks: HostClocks = "exclusive",
    tell: Callable[[str], None] = lambda said: None,
) -> Study:
    """Measure what of a study is not finished in its folder, on this host; the same call goes on where it stopped.

    Raises:
        UsageError: no backend takes a model; the folder is another study's, another driver's, or of other versions.
        MlpfusionError: no worker is left, or a result cannot be written.
    """
    planned = plan.plan(study, [each.device for each in slots])
    if not planned:
        raise UsageError("no device is here to measure on")
    holds = conditions.conditions(slots[0].device, study.settings.backends)
    with interrupts.stoppable(), folder.held(out):
        ledger = Ledger(study, planned, holds, out=out, shard=shard, fresh=fresh, host_clocks=host_clocks, tell=tell)
        local.run(ledger, slots, host_clocks=host_clocks, tell=tell)
        return ledger.record


def folder_of(study: Definition, out: Path | None, shard: Shard | None) -> Path:
    """Where a study is kept: below `sweeps`, by its name, unless a folder is given; each shard in a folder in that."""
    found = Path(FOLDER) / study.name if out is None else out
    return found if shard is None else found / f"shard-{shard.number}-of-{shard.parts}"


def earlier(study: Definition, out: Path) -> tuple[Kept, ...]:
    """The cells that an earlier run left in a folder, if it asked the same of each; nothing is changed there."""
    path = out / folder.STUDY_NAME
    if not path.exists():
        return ()
    try:
        found = results.load_study(path)
    except UsageError:  # a run makes it again from the cells
        return ()
    return found.cells if found.settings == study.settings else ()
