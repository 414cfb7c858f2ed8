"""Says what a reader must not read into the numbers, before they read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.report.host_load import disturbed
from mlpfusion.report.page.cases import tokens
from mlpfusion.report.profile.row import verdict
from mlpfusion.stats import QUANTILE_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mlpfusion.report.page.cases import Case

_NAMED = 4  # files that a sentence names


def cautions(cases: Sequence[Case], old: Sequence[str]) -> tuple[str, ...]:
    """Every sentence that applies; `old` are the files that were written in an older schema."""
    return tuple(_said(cases, old))


def _said(cases: Sequence[Case], old: Sequence[str]) -> Iterator[str]:
    if not cases:
        yield "No file holds a measured case: there is nothing to rank."
        return
    yield from _of_machines(cases)
    yield from _of_processes(cases)
    yield from _of_the_card(cases)
    yield from _of_the_host(cases)
    yield from _of_rows(cases)
    if old:
        yield f"Of an older schema, which kept less of what was measured: {_named(old)}."
    points = [case.source for case in cases if case.chosen_by is not None]
    if points:
        yield f"A choice file keeps no samples: its rows have ratios to the winner alone ({_named(points)})."


def _of_machines(cases: Sequence[Case]) -> Iterator[str]:
    devices = list(dict.fromkeys(case.device.name for case in cases))
    if len(devices) > 1:
        yield f"Measured on {len(devices)} devices ({', '.join(devices)}): times of one are not set against another's."
    cpu = [case for case in cases if case.device.kind == "cpu"]
    if cpu:
        yield (
            "Measured on a CPU: which kernels run, what they move and how right they are carries over to a GPU; times "
            f"do not ({_named(case.source for case in cpu)})."
        )
    versions = list(dict.fromkeys((case.environment.torch, case.environment.triton) for case in cases))
    if len(versions) > 1:
        said = ", ".join(f"torch {torch} with triton {triton or 'none'}" for torch, triton in versions)
        yield f"Measured with several versions: {said}."
    shapes = {(case.spec, case.mode, case.tokens) for case in cases}
    sources = {case.source for case in cases}
    if len(sources) > 1 and len(shapes) == len(cases):
        yield "No case is in two files: nothing here says how a repeat would differ."


def _of_processes(cases: Sequence[Case]) -> Iterator[str]:
    one = [case for case in cases if len(case.processes) == 1]
    if one:
        yield (
            "All rounds of a case are of one process: the intervals hold for that process, and a fresh one may differ "
            f"by more ({_named(case.source for case in one)}). `mlpfusion profile --publish` races five."
        )
    unknown = [case for case in cases if not case.processes]
    if unknown:
        yield f"How many processes raced is not recorded: {_named(case.source for case in unknown)}."
    changed = sorted({name for case in cases for process in case.processes for name in process.kernels})
    if changed:
        yield f"Other kernels ran in some process than the row says: {', '.join(changed)}."


def _of_the_card(cases: Sequence[Case]) -> Iterator[str]:
    gpu = [case for case in cases if case.device.kind == "cuda"]
    reasons: dict[str, list[str]] = {}
    unread = []
    for case in gpu:
        read = [process.throttle_reasons for process in case.processes if process.throttle_reasons is not None]
        if not read:
            unread.append(case.source)
        for reason in sorted({reason for each in read for reason in each}):
            reasons.setdefault(reason, []).append(case.source)
    for reason, names in reasons.items():
        yield f"The card was held back during the race: {reason} ({_named(names)})."
    if unread:
        yield f"Whether the card was throttled was not read: {_named(unread)}."
    loose = [case.source for case in gpu if (card := case.environment.card) is None or not card.locked_clocks]
    if loose:
        yield f"The card's clocks were not locked, or that is not known: {_named(loose)}."


def _of_the_host(cases: Sequence[Case]) -> Iterator[str]:
    said: dict[str, list[str]] = {}
    unknown = []
    for case in cases:
        loads = [row.clocks.neighbours for row in case.rows if row.clocks is not None]
        if loads and all(load is None for load in loads):
            unknown.append(case.source)
        for load in dict.fromkeys(loads):
            sentence = disturbed(load)
            if sentence is not None:
                said.setdefault(sentence, []).append(f"{tokens(case.tokens)} in {case.source}")
    for sentence, where in said.items():
        yield f"{sentence[0].upper()}{sentence[1:]} ({_named(where)})."
    if unknown:
        yield f"Whether the host was shared is not known: {_named(unknown)}."


def _of_rows(cases: Sequence[Case]) -> Iterator[str]:
    ended = [case.source for case in cases if not case.complete]
    if ended:
        yield f"The run ended early; rows that had not finished are missing: {_named(ended)}."
    emulated = _backends(cases, lambda word: word == "emulated")
    if emulated:
        yield (
            f"Emulated by Triton's interpreter, which computes values and has no times: {', '.join(emulated)}. Such "
            "rows are never ranked."
        )
    if all(verdict(row)[0] != "ok" for case in cases for row in case.rows):
        yield "No row of these files is both measured and right: there is no winner in them."
    few = sorted(
        {
            f"{clock.n}"
            for case in cases
            for row in case.rows
            if row.clocks is not None
            for clock in (row.clocks.event_us, row.clocks.wall_us, row.clocks.graph_us)
            if clock is not None and clock.n < QUANTILE_SAMPLES
        },
        key=int,
    )
    if few:
        yield f"Some clocks have {', '.join(few)} samples: below {QUANTILE_SAMPLES} no spread and no time is shown."


def _backends(cases: Sequence[Case], wanted: Callable[[str], bool]) -> list[str]:
    return list(dict.fromkeys(row.backend for case in cases for row in case.rows if wanted(verdict(row)[0])))


def _named(names: Iterable[str]) -> str:
    """The names, each once, and how many more there are than fit."""
    each = list(dict.fromkeys(names))
    more = len(each) - _NAMED
    return ", ".join(each[:_NAMED]) + (f" and {more} more" if more > 0 else "")
