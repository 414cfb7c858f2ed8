"""Says of the rows of a table what no cell can: why one has no figures, and what was left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of, has_spread
from mlpfusion.report.profile.columns.every import is_shown
from mlpfusion.report.profile.row import verdict
from mlpfusion.report.table.shapes import varying
from mlpfusion.stats import QUANTILE_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mlpfusion.stages.tabulate.races import Entry, Race


def remarks(races: Sequence[Race], shown: Collection[str], baseline: str | None) -> Iterator[str]:
    """One line for each thing that is to be said, with the races that it is said of where those are not all.

    `baseline` is None where no speedup is shown.
    """
    fields = varying(races)
    said: dict[str, list[str]] = {}
    for race in races:
        where = ", ".join(f"{field.value(race)}{' tokens' * (field.key == 'tokens')}" for field in fields)
        for line in _of_race(race, shown, baseline):
            said.setdefault(line, []).append(where)
    for line, places in said.items():
        yield line if len(places) == len(races) else f"{line} ({'; '.join(places)})"
    measured = [{each.name for each in race.entries if each.standing == "measured"} for race in races]
    if len(races) > 1 and all(measured) and not set.intersection(*measured):
        yield "no backend was measured in all of them"


def _of_race(race: Race, shown: Collection[str], baseline: str | None) -> Iterator[str]:
    for entry in race.entries:
        word, reason = ("predicted", None) if entry.standing == "predicted" else verdict(entry.row)
        if reason is not None:
            yield f"{entry.name}: {word}: {' '.join(reason.removeprefix(f'{word}: ').split())}"
        yield from _few(entry, shown)
        if entry.predicted is not None and entry.predicted.extrapolated:
            yield f"{entry.name}: predicted outside the measured products"
    timed = [each for each in race.entries if each.standing == "measured"]
    yield from _absent(timed, shown)
    if not timed:
        yield "no row was measured"
    elif baseline is not None and not any(each.name == baseline for each in timed):
        yield f"no speedup: {baseline} was not measured"


def _absent(entries: Sequence[Entry], shown: Collection[str]) -> Iterator[str]:
    """Why figures of the columns that are shown were not measured, as the file has it: each reason once."""
    absent: dict[str, list[str]] = {}
    for entry in entries:
        for part in (entry.row.clocks, entry.row.traffic, entry.row.memory):
            for field, reason in (part.reasons if part is not None else {}).items():
                if is_shown(field, shown):
                    absent.setdefault(f"{field}: not measured: {' '.join(reason.split())}", []).append(entry.name)
    for line, names in absent.items():
        yield f"{', '.join(names)}: {line}"


def _few(entry: Entry, shown: Collection[str]) -> Iterator[str]:
    """The clocks that are not shown since they have no spread."""
    for name in CLOCKS:
        clock = clock_of(entry.row, name)
        if name in shown and clock is not None and not has_spread(clock):
            count = f"{clock.n} sample{'s' * (clock.n != 1)}"
            yield f"{entry.name}: {name}: {count}; no figure without a spread, from {QUANTILE_SAMPLES} samples on"
