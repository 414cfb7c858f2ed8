"""Makes choices of what a study has measured: which backend for which number of tokens, without measuring again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from mlpfusion.errors import UsageError
from mlpfusion.records.choice import Conditions
from mlpfusion.stages.choose import run as choose
from mlpfusion.stages.sweep import folder
from mlpfusion.storage import results

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.records.choice import Choice, ClockName
    from mlpfusion.records.profile import Profile
    from mlpfusion.records.sweep.study import Kept, Study
    from mlpfusion.spec import Dtype

_ALWAYS: Final = ("torch", "triton", "mlpfusion", "mlpfusion_kernels")  # what every choice depends on


class _Group(NamedTuple):
    """The cells of one choice: those of one model, share, dtype and kind of GPU."""

    model: str
    tp: int
    dtype: Dtype
    gpu: str


def choices(name: str, *, model: str | None = None, clock: ClockName | None = None) -> list[Choice]:
    """A choice for each model of a study's folder, or of one: one for each share, dtype and kind of GPU measured.

    Raises:
        UsageError: it is no study's folder, has no such model or no finished cell of it, or a file in it is damaged.
    """
    path = Path(name)
    if not (path / folder.STUDY_NAME).is_file():
        raise UsageError(f"{name!r} is no study's folder: it holds no {folder.STUDY_NAME}")
    study = results.load_study(path / folder.STUDY_NAME)
    models = [each.name for each in study.models]
    if model is not None and model not in models:
        raise UsageError(f"study {study.name!r} has no model {model!r}; valid: {', '.join(models)}")
    groups: dict[_Group, list[Kept]] = {}
    for kept in study.cells:
        for use in kept.cell.work.of:
            if kept.state == "finished" and model in (None, use.model):
                dtype = kept.cell.work.workload.spec.dtype
                groups.setdefault(_Group(use.model, use.tp, dtype, kept.cell.gpu), []).append(kept)
    if not groups:
        raise UsageError(f"study {study.name!r} has no finished cell{f' of {model}' if model is not None else ''}")
    return [_choice(Path(name), study, group, kept, clock) for group, kept in groups.items()]


def _choice(path: Path, study: Study, group: _Group, kept: Sequence[Kept], clock: ClockName | None) -> Choice:
    (model,) = (each for each in study.models if each.name == group.model)
    order = sorted(kept, key=lambda each: (each.cell.work.workload.mode, each.cell.work.workload.tokens))
    profiles = [folder.load_cell(path / folder.CELLS / f"{each.file}", each.cell, study.settings) for each in order]
    return choose.decided(
        profiles,
        profiles[-1].device,
        model=replace(model, spec=replace(model.spec, dtype=group.dtype)),
        tp=group.tp,
        clock=choose.clock_asked(clock, profiles[-1].device),
        rounds=study.settings.rounds,
        holds=_held(profiles, [study.nodes[each.node or ""] for each in order]),
    )


def _held(profiles: Sequence[Profile], nodes: Sequence[Conditions]) -> Callable[[Sequence[str]], Conditions]:
    """What a choice holds for: the versions of the nodes, which all cells of one choice share, and of what ran."""

    def holds(chosen: Sequence[str]) -> Conditions:
        device = profiles[-1].device
        versions: dict[str, str | None] = {name: nodes[-1].versions.get(name) for name in _ALWAYS}
        for profile in profiles:
            for row in profile.rows:
                if row.backend in chosen:
                    versions |= row.distributions
        return Conditions(device=device.name, capability=device.capability, versions=dict(sorted(versions.items())))

    differing = {str(sorted(each.versions.items(), key=str)) for each in nodes}
    if len(differing) > 1:
        raise UsageError("its cells were measured with different versions; a choice needs cells of one")
    return holds
