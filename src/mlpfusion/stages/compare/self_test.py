"""Compares a file's processes with each other, every split into halves: what is found there is a false alarm."""

from __future__ import annotations

import itertools
import math
import random
from importlib import metadata
from typing import TYPE_CHECKING, Final

from mlpfusion.errors import UsageError
from mlpfusion.records.comparison import SCHEMA, SelfComparison, SelfRow
from mlpfusion.stages.compare import difference, groups, match, sources, times
from mlpfusion.stages.compare.difference import CONFIDENCE, ENOUGH
from mlpfusion.stages.compare.groups import CLOCKS
from mlpfusion.stages.compare.subjects import CONTROL, NO_CONTROL
from mlpfusion.stages.compare.verdict import THRESHOLD, holm, word
from mlpfusion.storage import inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.records.profile import Profile
    from mlpfusion.stages.compare.difference import Process
    from mlpfusion.stages.compare.subjects import Group

MOST_SPLITS: Final = 1000  # of one workload; of more, that many are drawn
_SEED: Final = 0
_ALIKE: Final = 1e-6


def compare_self(source: str, *, control: str = CONTROL, threshold: float = THRESHOLD) -> SelfComparison:
    """How often the processes of a file differ from each other beyond chance: each half of them against the rest.

    Raises:
        UsageError: there is no such file, or no workload in it has two processes with times of a row and its control.
    """
    found = sources.read(source)
    for group in found.groups:
        match.check_whole(group)
        check_group(group)
    rows: list[SelfRow] = []
    sampled = False
    for group in found.groups:
        made, some = _rows(group, found.row, control, threshold)
        rows += made
        sampled |= some
    if not rows:
        raise UsageError(
            f"{source!r} has no two processes with {difference.LEAST_ROUNDS} rounds of a row and of its control "
            f"{control!r}; `mlpfusion profile --processes 5` records some"
        )
    few = min(row.processes for row in rows)
    notes = []
    if few < 2 * ENOUGH:
        notes.append(
            f"a half of {few} processes is fewer than {ENOUGH}: a spread is assumed for it, and clocks with the host "
            "in them do not judge it"
        )
    if sampled:
        notes.append(f"{MOST_SPLITS} splits were drawn of all that there are")
    return SelfComparison(
        schema=SCHEMA,
        kind="self-comparison",
        mlpfusion=metadata.version("mlpfusion-read"),
        source=source,
        threshold=threshold,
        confidence=CONFIDENCE,
        rows=tuple(rows),
        sampled=sampled,
        notes=tuple(notes),
    )


def of_profile(profile: Profile) -> tuple[SelfRow, ...]:
    """The same of a profile that is to be published: what its processes say of each other, beside the usual control."""
    return tuple(row for group in groups.of_record(profile, "") for row in _rows(group, None, CONTROL, THRESHOLD)[0])


def check(profile: Profile, file: str) -> None:
    """Raise a UsageError unless the comparison with itself that a file carries is that of its own processes."""
    for group in groups.of_record(profile, file) if profile.itself else ():
        check_group(group)


def check_group(group: Group) -> None:
    """The same of a group that is compared; what another version took for an alarm is not this one's affair."""
    by_us = {each.value for each in group.settings if each.name == "mlpfusion"} == {metadata.version("mlpfusion-read")}
    names = ("processes", "spread", "largest", *(("splits", "alarms") if by_us else ()))
    rows = _rows(group, None, CONTROL, THRESHOLD)[0] if group.itself else ()
    found = {(row.backend, row.clock): row for row in rows}
    for place, said in enumerate(group.itself):
        is_so = found.get((said.backend, said.clock))
        for name in names:
            was, now = getattr(said, name), None if is_so is None else getattr(is_so, name)
            if now is None or not math.isclose(was, now, rel_tol=_ALIKE, abs_tol=_ALIKE):
                told = "no such row" if now is None else now
                shown = "stdin" if inputs.is_stdin(group.file) else repr(group.file)
                raise UsageError(
                    f"{shown} is a damaged profile: {was} where its processes give {told} - at "
                    f"`$.itself[{place}].{name}`"
                )


def _rows(group: Group, row: str | None, control: str, threshold: float) -> tuple[list[SelfRow], bool]:
    """Every clock of the rows against itself, and whether not every split was made."""
    rows: list[SelfRow] = []
    sampled = False
    made = _processes(group, row, control)
    for n in sorted({len(each) for each in made.values()}):
        splits, some = _splits(n)
        sampled |= some
        rows += _of_group(group, {key: each for key, each in made.items() if len(each) == n}, splits, threshold)
    return rows, sampled


def _processes(group: Group, row: str | None, control: str) -> dict[tuple[str, str], tuple[Process, ...]]:
    """The processes of each row and clock, where there are two at least."""
    controls = group.clocks_of(control)
    found = {}
    for name, subject in group.rows.items():
        if name == control or (row is not None and name != row):
            continue
        for clock in CLOCKS:
            timed = subject.clocks.get(clock)
            if timed is None or (control != NO_CONTROL and clock not in controls):
                continue
            each = times.processes_of(clock, timed, None if control == NO_CONTROL else controls[clock])
            if len(each) > 1:
                found[name, clock] = each
    return found


def _splits(n: int) -> tuple[list[frozenset[int]], bool]:
    """The first halves of all splits of `n`, each split once; of too many, some, drawn always alike."""
    half = n // 2
    if math.comb(n, half) <= 2 * MOST_SPLITS:
        every = map(frozenset, itertools.combinations(range(n), half))
        return [each for each in every if 2 * half != n or 0 in each], False
    rng = random.Random(_SEED)
    drawn: dict[frozenset[int], None] = {}
    while len(drawn) < MOST_SPLITS:
        drawn[frozenset(rng.sample(range(n), half))] = None
    return list(drawn), True


def _of_group(
    group: Group,
    made: dict[tuple[str, str], tuple[Process, ...]],
    splits: Sequence[frozenset[int]],
    threshold: float,
) -> Iterator[SelfRow]:
    alarms = dict.fromkeys(made, 0)
    largest = dict.fromkeys(made, 0.0)
    half = min((len(split) for split in splits), default=0)  # the smaller one
    judged = [key for key in made if half >= difference.ENOUGH or not group.rows[key[0]].clocks[key[1]].has_host]
    for split in splits:
        each = {key: _half_against_half(found, split, key[1]) for key, found in made.items()}
        for key, one in each.items():
            largest[key] = max(largest[key], abs(math.expm1(one.log)))
        for key, p in zip(judged, holm([each[key].p for key in judged]), strict=True):
            alarms[key] += word(each[key], p, threshold) in ("slower", "faster")
    for (name, clock), found in made.items():
        yield SelfRow(
            group=group.title,
            backend=name,
            clock=clock,
            processes=len(found),
            spread=difference.deviation([each.log for each in found]),
            splits=len(splits) if (name, clock) in judged else 0,
            alarms=alarms[name, clock],
            largest=largest[name, clock],
        )


def _half_against_half(found: Sequence[Process], split: frozenset[int], clock: str) -> difference.Difference:
    first = [each for place, each in enumerate(found) if place in split]
    second = [each for place, each in enumerate(found) if place not in split]
    return difference.between(first, second, difference.PRIORS.get(clock, difference.PRIOR))
