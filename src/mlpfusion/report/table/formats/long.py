"""Lists every sample of races, a line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.errors import UsageError
from mlpfusion.report.grid import csv_text
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of
from mlpfusion.report.table.rows import of_race

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.report.table.model import Value
    from mlpfusion.stages.tabulate.races import Race


def render(races: Sequence[Race]) -> str:
    """Every sample as CSV; a round that was dropped has an empty `us`.

    `process` and `round` begin at 0; rows of one process and round were timed one after the other. A trace that
    qualified a row was in no process of the race.

    Raises:
        UsageError: there is no sample, as in a choice, which keeps none.
    """
    lines = [line for race in races for line in _lines(race)]
    if not lines:
        raise UsageError("--long shows samples, and no row has any; a choice keeps none, its profiles do")
    return csv_text(lines)


def _lines(race: Race) -> Iterator[dict[str, Value]]:
    shared = of_race(race)
    for entry in race.entries:
        for name in CLOCKS:
            clock = clock_of(entry.row, name)
            for process, rounds in enumerate(clock.rounds if clock is not None else ()):
                for number, us in enumerate(rounds):
                    yield {
                        **shared,
                        "backend": entry.name,
                        "kind": entry.standing,
                        "clock": name,
                        "l2": clock.l2 if clock is not None else None,
                        "process": process,
                        "round": number,
                        "us": us,
                    }
