"""Says in words and in a table which backend wins where, by how much, and what is inconclusive."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.records.choice import Choice
from mlpfusion.records.profile import BASELINE
from mlpfusion.report import speedup
from mlpfusion.report.grid import clock_time
from mlpfusion.report.page.cases import tokens
from mlpfusion.report.page.cells import Head, Table, cell, line
from mlpfusion.stats import QUANTILE_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.report.page.cases import Rival, Standing
    from mlpfusion.report.page.sources import Source

_SENTENCES: Final = 8  # on the first screen; the table below it has all


def sentences(found: Sequence[Standing], sources: Sequence[Source]) -> Iterator[str]:
    """Who wins at which tokens: a choice's ranges, then the cases one by one, or their number where there are many."""
    for each in sources:
        if isinstance(each.result, Choice):
            yield from _ranges(each.result, each.name)
    won = [each for each in found if each.winner is not None]
    if not won:
        yield (
            f"No backend has a time with an interval, so none is fastest: a spread is given from {QUANTILE_SAMPLES} "
            "rounds on, and only of rows that are right and were not emulated."
        )
        return
    if len(won) > _SENTENCES:
        yield _counted(won)
        won = _extremes(won)
    many = len({(each.case.shape, each.case.mode) for each in found}) > 1
    yield from (_sentence(each, many=many) for each in won)
    if len(found) > len([each for each in found if each.winner is not None]):
        lost = [each.case for each in found if each.winner is None]
        yield f"Without a winner: {'; '.join(f'{each.workload} ({each.source})' for each in lost[:_SENTENCES])}."


def _ranges(choice: Choice, name: str) -> Iterator[str]:
    for mode in dict.fromkeys(each.mode for each in choice.ranges):
        said = [
            f"{each.backend} {_tokens(each.first, each.last)}{' (a tie)' if each.tie else ''}"
            for each in choice.ranges
            if each.mode == mode
        ]
        yield (
            f"Chosen for {choice.model.name} in {mode}, by {choice.clock}: {'; '.join(said)}. Ends of ranges between "
            f"two measured points are estimates ({name})."
        )


def _tokens(first: int, last: int | None) -> str:
    if last is None:
        return f"from {first} tokens on" if first > 1 else "for any number of tokens"
    return f"at {tokens(first)}" if first == last else f"from {first} to {last} tokens"


def _counted(won: Sequence[Standing]) -> str:
    clear = Counter(each.winner.backend for each in won if each.winner is not None and not each.tied)
    ties = sum(bool(each.tied) for each in won)
    said = [f"{name} in {count}" for name, count in clear.most_common()]
    alone = f"{', '.join(said)} with an interval that excludes every other" if said else "no backend alone"
    return f"Of {len(won)} cases by {won[0].clock}, {alone}; {ties} are inconclusive. The first and the last by tokens:"


def _extremes(won: Sequence[Standing]) -> list[Standing]:
    by_tokens = sorted(won, key=lambda each: each.case.tokens)
    return [by_tokens[0], by_tokens[-1]]


def _sentence(each: Standing, *, many: bool) -> str:
    """Who wins one case; `many`: there are others of another shape or mode."""
    case, winner, time = each.case, each.winner, each.time
    assert winner is not None
    assert time is not None
    ratio = time.ratio_to_eager
    against = "" if ratio is None or winner.backend == BASELINE else f", {speedup.cell(ratio)} against {ratio.baseline}"
    where = f"At {tokens(case.tokens)}" + (f" ({case.shape}, {case.mode})" if many else "")
    said = f"{winner.backend} has the lowest {each.clock}, L2 {time.l2}: {clock_time(time)} µs{against}"
    return f"{where}, {said}; {_doubt(each)}. Source: {case.source}."


def _doubt(each: Standing) -> str:
    if not each.rivals:
        return "nothing else was timed"
    if not each.tied:
        nearest = each.rivals[0]
        return f"the next, {nearest.row.backend}, is behind: {speedup.cell(nearest.ratio)} against it"
    return f"inconclusive against {', '.join(_tie(rival) for rival in each.tied)}"


def _tie(rival: Rival) -> str:
    if rival.ratio is None:
        return f"{rival.row.backend} (no rounds to pair)"
    return f"{rival.row.backend} ({speedup.cell(rival.ratio)})"


def table(found: Sequence[Standing]) -> Table:
    """One line per case: the winner, its time and speedup, and what it is not known to beat."""
    heads = (
        Head("workload"),
        Head("tokens", number=True),
        Head("lowest"),
        Head("µs [p20–p80]", number=True),
        Head("speedup vs eager", number=True),
        Head("inconclusive against"),
        Head("next that is behind"),
        Head("source"),
    )
    lines = []
    for each in found:
        case, time = each.case, each.time
        ratio = None if time is None else time.ratio_to_eager
        ahead = next((rival for rival in each.rivals if rival.is_behind), None)
        lines.append(
            line(
                case.label,
                cell(str(case.tokens), case.tokens),
                cell(each.winner.backend if each.winner is not None else None),
                cell(clock_time(time), None if time is None else time.median),
                cell(speedup.cell(ratio), None if ratio is None else speedup.of(ratio).median),
                ", ".join(_tie(rival) for rival in each.tied),
                None if ahead is None else f"{ahead.row.backend} ({speedup.cell(ahead.ratio)})",
                case.source,
                tokens=str(case.tokens),
                mode=case.mode,
            )
        )
    clock = found[0].clock if found else units.ABSENT
    return Table("winners", f"The lowest {clock} of each case", heads, tuple(lines))
