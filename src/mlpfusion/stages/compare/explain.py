"""Says what a comparison's changes point to: the machine, a backend, another choice of kernels, another version."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.stages.compare.control import others
from mlpfusion.stages.compare.facts import OTHER_WORK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.records.comparison import ClockChange, Comparison, GroupChange, RowChange
    from mlpfusion.stages.compare.control import Others
    from mlpfusion.stages.compare.subjects import Subject

_DEVICE: Final = ("graph_us", "kernel_us", "event_us", "wall_us")


def of_row(found: RowChange, a: Subject, b: Subject) -> RowChange:
    """A row that changed, with what it points to."""
    versions = [
        f"{name} {a.versions[name] or 'not installed'} → {b.versions[name] or 'not installed'}"
        for name in a.versions
        if name in b.versions and a.versions[name] != b.versions[name]
    ]
    parts = [", ".join(versions)] if versions else []
    if a.name == b.name and any(fact.name in OTHER_WORK for fact in found.facts):
        parts.append(
            "its kernels changed: another choice of a tuner or a library" if not versions else "its kernels changed"
        )
    for side, who in ((a, "baseline"), (b, "candidate")):
        if side.others:
            parts.append(f"other kernels in {side.others} of the {who}'s processes: its spread is that of two choices")
        if side.raced_others:
            parts.append(f"the {who} was timed with other kernels than those whose facts it tells")
    return msgspec.structs.replace(found, note="; ".join(parts)) if parts else found


def explained(found: Comparison, *, no_control: bool, exact: bool) -> Comparison:
    """The comparison with notes on each group and on the whole."""
    groups = tuple(
        msgspec.structs.replace(group, notes=tuple(_of_group(group, found.threshold))) for group in found.groups
    )
    notes = []
    if exact:
        notes.append("facts alone: times were left out")
    elif no_control:
        notes.append("no control: what the machine changed between the two is in every ratio")
    return msgspec.structs.replace(found, groups=groups, notes=tuple(notes))


def _of_control(group: GroupChange, own: ClockChange, went: Others) -> str:
    control = next((row for row in group.rows if row.baseline == group.control == row.candidate), None)
    if control is not None and any(fact.name in OTHER_WORK for fact in control.facts):
        return f"{group.control} itself changed, and so did its kernels: every ratio is relative to other work"
    said = f"{group.control} itself changed by {own.clock}, and {went.went} of {went.number} other rows with it"
    if went.is_machine:
        return f"{said}: the machine or its settings"
    return f"{said}: a ratio to it says little; --control names another row" if went.is_control else said


def _of_group(group: GroupChange, threshold: float) -> Iterator[str]:
    own = next((each for clock in _DEVICE for each in group.control_times if each.clock == clock), None)
    moved = own is not None and own.ratio is not None and abs(math.log(own.ratio)) > math.log1p(threshold)
    went = others(own, [row.times for row in group.rows if row.baseline == row.candidate]) if own and moved else None
    if own is not None and went is not None:
        yield _of_control(group, own, went)
    if went is not None and not went.is_machine:
        return  # what its change makes of the others is no finding
    decided = [row for row in group.rows if row.word is not None]
    changed = [row for row in decided if row.word in ("slower", "faster")]
    if len(changed) == 1 and len(decided) > 1 and all(row.word == "same" for row in decided if row not in changed):
        yield f"{changed[0].candidate} alone is {changed[0].word}: the backend, not the machine"
    elif len(changed) == len(decided) > 1 and len({row.word for row in changed}) == 1:
        yield f"all rows are {changed[0].word}: look at {group.control or 'the machine'} first"
