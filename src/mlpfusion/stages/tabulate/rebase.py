"""Makes the times of races relative to another baseline, round by round."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mlpfusion import stats
from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Clock, Ratio
    from mlpfusion.stages.tabulate.races import Entry, Race

RECORDED: Final = "eager"  # to which the ratios of a file are
_CLOCKS: Final = ("wall_us", "event_us", "kernel_us", "graph_us")


def rebased(races: Sequence[Race], name: str) -> tuple[Race, ...]:
    """The races with the ratios of every clock to the row `name`; those to `RECORDED` are the file's own.

    A row whose rounds cannot be paired with the baseline's has no ratio.

    Raises:
        UsageError: no race has a measured row of this name.
    """
    if name == RECORDED:
        return tuple(races)
    measured = dict.fromkeys(each.name for race in races for each in race.entries if each.standing == "measured")
    if name not in measured:
        near = difflib.get_close_matches(name, measured, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ";"
        raise UsageError(f"--baseline {name!r} was measured in no file{hint} valid: {', '.join(measured) or 'none'}")
    return tuple(race._replace(entries=_rebased(race.entries, name)) for race in races)


def _rebased(entries: Sequence[Entry], name: str) -> tuple[Entry, ...]:
    baseline = next((each for each in entries if each.name == name and each.standing == "measured"), None)
    return tuple(_relative(each, baseline) for each in entries)


def _relative(entry: Entry, baseline: Entry | None) -> Entry:
    if entry.row.clocks is None:
        return entry
    changed = {}
    for field in _CLOCKS:
        clock: Clock | None = getattr(entry.row.clocks, field)
        if clock is not None:
            changed[field] = replace(clock, ratio_to_eager=_ratio(entry, clock, baseline, field))
    return entry._replace(row=replace(entry.row, clocks=replace(entry.row.clocks, **changed)))


def _ratio(entry: Entry, clock: Clock, baseline: Entry | None, field: str) -> Ratio | None:
    other: Clock | None = getattr(baseline.row.clocks, field, None) if baseline is not None else None
    if baseline is None or other is None or entry.name == baseline.name:
        return None
    if field != "kernel_us" and (found := stats.paired(clock, other, baseline.name)) is not None:
        return found
    # A choice keeps no rounds, but the ratio to the winner of each point.
    won = entry.to_winner
    return won if won is not None and won.baseline == baseline.name else None
