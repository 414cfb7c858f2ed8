"""Concludes a profile in ten lines: the fastest backend, how certain that is, what is wrong, what to do next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion import units
from mlpfusion.records.profile import BASELINE
from mlpfusion.report import speedup
from mlpfusion.report.grid import clipped
from mlpfusion.report.host_load import is_disturbing
from mlpfusion.report.profile.columns.clocks import clock_of, has_spread
from mlpfusion.report.profile.legend import LABEL, WIDTH
from mlpfusion.report.profile.row import tokens_of, verdict
from mlpfusion.stats import QUANTILE_SAMPLES, paired
from mlpfusion.storage.letters import markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.report.profile.columns.clocks import ClockName

MOST_LINES: Final = 10
_NAME_WIDTH: Final = 30  # of one backend
_NAMES_WIDTH: Final = 48  # of the backends that share a reason
_WORST_FIRST: Final = ("failed", "untimed", "unavailable", "emulated")
_UNSAVED: Final = "result.json"  # what a result that is in no file yet is called in commands


class _Timed(NamedTuple):
    """A backend that was timed by one clock."""

    row: Row
    clock: Clock


def conclusion(profile: Profile, clock: ClockName, *, source: str | None, github: bool) -> str:
    """At most `MOST_LINES` lines; `source` is the result file, None where there is none."""
    ranked = _ranked(profile.rows, clock)
    said = [("fastest", _fastest(ranked, clock))]
    if len(ranked) > 1:
        said.append(("certain", _certainty(profile, ranked, clock)))
    device = _ranked(profile.rows, "graph_us")
    if clock != "graph_us" and ranked and device and device[0].row.backend != ranked[0].row.backend:
        said.append(("device", f"{_named(device[0], 'graph_us')}: the device alone, without the host"))
    commands = _commands(profile, ranked, source)
    said += _problems(profile.rows, clock, MOST_LINES - len(said) - len(commands))
    if github:
        lines = [f"- **{markdown(label)}**: {markdown(text)}" for label, text in said]
        return "\n".join([*lines, *(f"- **next**: `{command}`" for command in commands)])
    lines = [f"{label:<{LABEL}}  {clipped(text, WIDTH - LABEL - 2)}" for label, text in said]
    labels = ["next", *[""] * len(commands)]
    return "\n".join([*lines, *(f"{label:<{LABEL}}  {text}" for label, text in zip(labels, commands, strict=False))])


# ---- who is fastest, and is that certain -----------------------------------------------------------------------------


def _ranked(rows: Sequence[Row], clock: ClockName) -> list[_Timed]:
    """The right backends that have this clock with a spread, the fastest first."""
    timed = [
        _Timed(row, found)
        for row in rows
        if verdict(row)[0] == "ok" and (found := clock_of(row, clock)) is not None and has_spread(found)
    ]
    return sorted(timed, key=lambda each: each.clock.median)


def _fastest(ranked: Sequence[_Timed], clock: ClockName) -> str:
    return (
        _named(ranked[0], clock)
        if ranked
        else f"unknown: no backend has a time with a spread, from {QUANTILE_SAMPLES} rounds on"
    )


def _named(best: _Timed, clock: ClockName) -> str:
    """A backend with its time and its speedup."""
    time = units.with_spread(best.clock.median, best.clock.p20 or 0, best.clock.p80 or 0)
    ratio = best.clock.ratio_to_eager
    name = clipped(best.row.backend, _NAME_WIDTH)
    if name == BASELINE:
        return f"{name}, the baseline, by {clock}: {time} µs"
    against = "no ratio to eager" if ratio is None else f"{speedup.cell(ratio)} vs eager"
    return f"{name} by {clock}: {against}, {time} µs"


def _certainty(profile: Profile, ranked: Sequence[_Timed], clock: ClockName) -> str:
    """Whether the order of the two fastest is beyond noise and background load, in a run that was finished."""
    best, second = ranked[0], ranked[1]
    name = clipped(second.row.backend, _NAME_WIDTH)
    load = best.row.clocks.neighbours if best.row.clocks is not None else None
    busy = "" if load is None else f"; background load {load:.0%}"
    ratio = paired(best.clock, second.clock, second.row.backend)
    if ratio is None:
        return f"unknown: no rounds to pair with the next, {name}{busy}"
    ahead = f"{speedup.cell(ratio)} vs the next, {name}"
    if not speedup.of(ratio).certain:
        return f"no: {ahead}: a tie{busy}"
    if not profile.complete:
        return f"no: the run ended early; {ahead}{busy}"
    if is_disturbing(load) and clock != "graph_us":
        return f"no: background load {load:.0%} of the CPU, repeat on an idle host; {ahead}"
    return f"yes: {ahead}: the interval excludes 1{busy}"


# ---- what is wrong ---------------------------------------------------------------------------------------------------


def _problems(rows: Sequence[Row], clock: ClockName, room: int) -> list[tuple[str, str]]:
    """What has no time, grouped by reason, the worst first; what has no room is named without its reason."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if (problem := _problem(row, clock)) is not None:
            grouped.setdefault(problem, []).append(row.backend)
    groups = sorted(grouped.items(), key=lambda group: _WORST_FIRST.index(group[0][0]))
    if len(groups) <= room:
        return [(word, f"{_listed(names)}: {reason}") for (word, reason), names in groups]
    shown, rest = groups[: room - 1], groups[room - 1 :]
    left = [f"{name} ({word})" for (word, _), names in rest for name in names]
    lines = [(word, f"{_listed(names)}: {reason}") for (word, reason), names in shown]
    return [*lines, ("and", f"{_listed(left, WIDTH - LABEL - 35)}: see --full")]


def _problem(row: Row, clock: ClockName) -> tuple[str, str] | None:
    """The word for a row that has no time by `clock`, and the reason; None for one that has."""
    word, reason = verdict(row)
    if word == "emulated":
        return word, f"ran {tokens_of(row)} in Triton's interpreter; no times"
    if word != "ok":
        return word, " ".join((reason or "").removeprefix(f"{word}: ").split())
    found = clock_of(row, clock)
    if found is None:
        absent = row.clocks.reasons.get(clock) if row.clocks is not None else None
        return "untimed", absent or f"no {clock} was read"
    return None if has_spread(found) else ("untimed", f"{found.n} samples of {clock}, of {QUANTILE_SAMPLES} at least")


def _listed(names: Sequence[str], width: int = _NAMES_WIDTH) -> str:
    """The names with commas, and how many more there are than fit."""
    text = clipped(names[0], width)
    for place, name in enumerate(names[1:], 1):
        if len(text) + len(name) > width:
            return f"{text} and {len(names) - place} more"
        text += f", {name}"
    return text


# ---- what to do next -------------------------------------------------------------------------------------------------


def _commands(profile: Profile, ranked: Sequence[_Timed], source: str | None) -> list[str]:
    file = shlex.quote(_UNSAVED if source is None else source)
    commands = [f"mlpfusion table {file} --full"]
    if source is None:
        commands.insert(0, f"mlpfusion profile --json {_UNSAVED}  # with the options of this run")
    names = [each.row.backend for each in ranked]
    best = next((name for name in names if name != BASELINE), None)
    if best is None:
        best = next((row.backend for row in profile.rows if verdict(row)[0] == "emulated"), None)
    elif BASELINE in names and file != "-":  # stdin can be read once
        commands.append(f"mlpfusion diff {file}:{BASELINE} {file}:{shlex.quote(best)}")
    if best is not None:
        activation = profile.workload.spec.activation
        other = "" if activation == "gelu_tanh" else f" --activation {activation}"
        commands.append(f"mlpfusion validate {shlex.quote(best)}{other}")
    return commands
