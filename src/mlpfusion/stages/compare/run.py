"""Compares two result files, folders or rows: times by processes, facts exactly, settings first."""

from __future__ import annotations

import math
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from mlpfusion import limits
from mlpfusion.errors import UsageError
from mlpfusion.records.comparison import SCHEMA, Comparison, GroupChange, RowChange, SettingChange
from mlpfusion.stages.compare import explain, facts, match, self_test, settings, sources, times
from mlpfusion.stages.compare.control import alone, judged
from mlpfusion.stages.compare.difference import CONFIDENCE
from mlpfusion.stages.compare.groups import CLOCKS
from mlpfusion.stages.compare.subjects import CONTROL, NO_CONTROL
from mlpfusion.stages.compare.verdict import THRESHOLD, holm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.comparison import ClockChange, Word
    from mlpfusion.stages.compare.match import Pair
    from mlpfusion.stages.compare.subjects import Group, Source
    from mlpfusion.stages.compare.times import Outcome


class _Compared(NamedTuple):
    """Two matched rows with what their clocks say."""

    names: tuple[str, str]
    outcomes: tuple[Outcome, ...]


def compare(
    baseline: str,
    candidate: str,
    *,
    control: str = CONTROL,
    threshold: float = THRESHOLD,
    exact: bool = False,
    force: bool = False,
) -> Comparison:
    """What changed from `baseline` to `candidate`: each a result file, a row of one (`FILE:backend`), or a folder.

    Times are those relative to the row `control` in the same rounds, unless it is `none`. A smaller change than
    `threshold`, a share of the time, is none. `exact` leaves times out. `force` compares what was measured differently.

    Raises:
        UsageError: `threshold` is out of range, there is no such file or row, no row is in both, or they were measured
            differently.
    """
    limits.share("threshold", threshold, limits.THRESHOLD)
    a, b = sources.read_both(baseline, candidate)
    match.check_sides(a, b)
    pairs = match.pairs(a, b)
    for group in (each for pair in pairs for each in (pair.baseline, pair.candidate)):
        match.check_whole(group)
        self_test.check_group(group)
    only = match.left_over(a, b, pairs)
    _check_ran(a, pairs)
    if exact:
        pairs = tuple(
            pair._replace(baseline=_untimed(pair.baseline), candidate=_untimed(pair.candidate)) for pair in pairs
        )
    changed = _settings(pairs)
    if not force:
        timed = any(row.clocks for pair in pairs for row in pair.baseline.rows.values())
        settings.check(
            (each for each in changed if timed or each.name in settings.FACTS_DEPEND_ON), baseline, candidate
        )
    _check_control(control, pairs, is_named=a.row is not None or b.row is not None)
    compared = [_compared(pair, control) for pair in pairs]
    adjusted = _adjusted(compared)
    groups = tuple(_group(pair, rows, adjusted, control, threshold) for pair, rows in zip(pairs, compared, strict=True))
    made = Comparison(
        schema=SCHEMA,
        kind="comparison",
        mlpfusion=metadata.version("mlpfusion-read"),
        baseline=baseline,
        candidate=candidate,
        threshold=threshold,
        confidence=CONFIDENCE,
        groups=groups,
        settings=changed,
        only_baseline=only[0],
        only_candidate=only[1],
        geometric_means=_geometric_means(groups),
    )
    return explain.explained(made, no_control=control == NO_CONTROL, exact=exact)


# ---- what is refused -------------------------------------------------------------------------------------------------


def _check_ran(a: Source, pairs: Sequence[Pair]) -> None:
    rows = [pair.baseline.rows[name] for pair in pairs for name, _ in pair.rows]
    if not any(row.ran for row in rows):
        status = next((fact.text for fact in rows[0].facts if fact.name == "status"), "")
        raise UsageError(f"no row of {a.name!r} ran, so that there is nothing to compare with: {rows[0].name} {status}")


def _check_control(control: str, pairs: Sequence[Pair], *, is_named: bool) -> None:
    if control == NO_CONTROL:
        return
    timed = [pair for pair in pairs if any(pair.baseline.rows[name].clocks for name, _ in pair.rows)]
    for pair in timed if control != CONTROL and not any(_controls(each, control) for each in timed) else ():
        _refuse_control(control, pair)  # also where it would cancel: a name that is none is a mistake
    needed = [pair for pair in timed if not pair.together and pair.baseline.controls is None]
    for pair in needed if not any(_controls(each, control) for each in needed) else ():
        _refuse_control(control, pair)
    has_others = all(len(group.rows) > 1 for pair in pairs for group in (pair.baseline, pair.candidate))
    if needed and has_others and all(pair.rows == ((control, control),) for pair in pairs):
        a, b = (sorted(group.rows) for group in (needed[0].baseline, needed[0].candidate))
        what = f"no row but the control {control!r} is in both: {', '.join(a)}; {', '.join(b)}"
        if is_named:
            what = f"{control!r} is the control, to which the times of other rows are relative"
        raise UsageError(f"{what}; --control names another row or none, and --exact compares facts alone")


def _refuse_control(control: str, pair: Pair) -> NoReturn:
    lacking = next(group for group in (pair.baseline, pair.candidate) if not group.clocks_of(control))
    valid = [name for name, row in lacking.rows.items() if row.clocks]
    raise UsageError(
        f"control {control!r} has no times in {lacking.file!r}; valid for --control: {', '.join([*valid, NO_CONTROL])}"
    )


def _controls(pair: Pair, control: str) -> bool:
    """Whether both sides have it, and one of them its times: where it failed, that is told as a fact."""
    sides = (pair.baseline, pair.candidate)
    are_there = all(group.controls is not None or control in group.rows for group in sides)
    return are_there and any(group.clocks_of(control) for group in sides)


def _settings(pairs: Iterable[Pair]) -> tuple[SettingChange, ...]:
    found: dict[SettingChange, None] = {}
    for pair in pairs:
        if pair.relaxed and pair.baseline.spec is not None and pair.candidate.spec is not None:
            first, second = pair.baseline.spec.dtype, pair.candidate.spec.dtype
            found[SettingChange(name="dtype", baseline=first, candidate=second, weight="refused")] = None
        if not pair.together:
            found |= dict.fromkeys(settings.changes(pair.baseline, pair.candidate))
        for of_a, of_b in pair.rows:
            a, b = pair.baseline.rows[of_a], pair.candidate.rows[of_b]
            found |= dict.fromkeys(settings.of_caches(a.clocks, b.clocks))
    return tuple(found)


def _untimed(group: Group) -> Group:
    rows = {name: row._replace(clocks={}) for name, row in group.rows.items()}
    return group._replace(rows=rows, controls=None)


# ---- what is compared ------------------------------------------------------------------------------------------------


def _compared(pair: Pair, control: str) -> list[_Compared]:
    controls = [group.clocks_of(control) for group in (pair.baseline, pair.candidate)]
    found = []
    for names in pair.rows:
        rows = [group.rows[name] for group, name in zip((pair.baseline, pair.candidate), names, strict=True)]
        shown = [clock for clock in CLOCKS if any(clock in row.clocks for row in rows)]
        if names == (control, control):
            shown = []  # it is what the others are relative to, and stands by itself
        sides = {
            clock: [times.Side(row.clocks.get(clock), own.get(clock)) for row, own in zip(rows, controls, strict=True)]
            for clock in shown
        }
        outcomes = tuple(
            times.outcome(clock, a, b, with_control=control != NO_CONTROL, together=pair.together)
            for clock, (a, b) in sides.items()
        )
        found.append(_Compared(names, outcomes))
    return found


def _adjusted(compared: Iterable[Iterable[_Compared]]) -> dict[int, tuple[float, int]]:
    """By the identity of each outcome that decides: its probability among all rows and clocks, and their number."""
    each = [
        (id(one), one.found.p)
        for rows in compared
        for row in rows
        for one in row.outcomes
        if one.decides and one.found is not None
    ]
    adjusted = holm([p for _, p in each])
    return {key: (p, len(each)) for (key, _), p in zip(each, adjusted, strict=True)}


def _group(
    pair: Pair,
    compared: Sequence[_Compared],
    adjusted: dict[int, tuple[float, int]],
    control: str,
    threshold: float,
) -> GroupChange:
    first, second = (group.clocks_of(control) for group in (pair.baseline, pair.candidate))
    own = [times.own_change(clock, first.get(clock), second.get(clock)) for clock in CLOCKS]
    shown = control != NO_CONTROL and not pair.together
    changes = [
        tuple(times.change(one, *adjusted.get(id(one), (1.0, 1)), threshold) for one in row.outcomes)
        for row in compared
    ]
    kept = [found for row, found in zip(compared, changes, strict=True) if row.names[0] == row.names[1]]
    without = alone(own, kept) if shown else frozenset()
    rows = []
    for row, found in zip(compared, changes, strict=True):
        changed = tuple(judged(each, without, threshold) for each in found)
        a, b = pair.baseline.rows[row.names[0]], pair.candidate.rows[row.names[1]]
        made = RowChange(
            baseline=a.name,
            candidate=b.name,
            word=_word(changed),
            times=changed,
            facts=facts.changes(a, b),
        )
        rows.append(explain.of_row(made, a, b))
    return GroupChange(
        title=pair.baseline.title,
        rows=tuple(rows),
        spec=pair.baseline.spec,
        tokens=pair.baseline.tokens,
        mode=pair.baseline.mode,
        control=("original" if pair.baseline.controls is not None else control) if shown and any(own) else None,
        control_times=tuple(each for each in own if each is not None) if shown else (),
    )


def _word(found: Sequence[ClockChange]) -> Word | None:
    """The verdict of a row: a clock that says slower, else one that says faster, else what the first says."""
    words = [each.word for each in found if each.word is not None]
    loud: list[Word] = [word for word in ("slower", "faster") if word in words]
    return (loud + words)[0] if words else None


def _geometric_means(groups: Iterable[GroupChange]) -> dict[str, float]:
    """Of the ratios of all rows by each clock that decides: Fleming and Wallace 1986."""
    found = {}
    for clock in CLOCKS:
        ratios = [
            change.ratio
            for group in groups
            for row in group.rows
            for change in row.times
            if change.clock == clock and change.word is not None and change.ratio is not None
        ]
        if len(ratios) > 1:
            found[clock] = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return found
