"""The first words of a page: what was measured where, what failed and why, and what the winners cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.records.profile import BASELINE
from mlpfusion.report.page.cases import cases as cases_of
from mlpfusion.report.page.cases import tokens
from mlpfusion.report.profile.row import verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.records.profile import Row
    from mlpfusion.report.page.cases import Case, Standing
    from mlpfusion.report.page.sources import Source

_MOST: Final = 6  # sentences of one kind on the first screen


def measured(cases: Sequence[Case], sources: Sequence[Source]) -> Iterator[str]:
    """What was measured where: one sentence for each device and shape, and one for files of another kind."""
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.device.name, case.shape, case.mode), []).append(case)
    for (device, shape, mode), found in list(groups.items())[:_MOST]:
        where = found[0].environment
        counts = sorted({case.tokens for case in found})
        at = " and ".join(each for each in (", ".join(map(str, counts[:-1])), tokens(counts[-1])) if each)
        names = list(dict.fromkeys(row.backend for case in found for row in case.rows))
        driver = f", driver {where.driver}" if where.driver else ""
        dates = sorted({case.created[:10] for case in found})
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        yield (
            f"One gated MLP, {shape}, in {mode} at {at}: {len(names)} backends on {device} (torch "
            f"{where.torch}, triton {where.triton or 'none'}{driver}), {_rounds(found)}, {when}."
        )
    if len(groups) > _MOST:
        yield f"And {len(groups) - _MOST} more shapes or modes; the table of winners has all of them."
    silent = [each for each in sources if not cases_of([each])]
    if silent:
        kinds = ", ".join(f"{each.name} ({each.result.kind})" for each in silent[:_MOST])
        yield f"Other files of this page: {kinds}{'' if len(silent) <= _MOST else f' and {len(silent) - _MOST} more'}."


def _rounds(cases: Sequence[Case]) -> str:
    counts = {
        clock.n
        for case in cases
        for row in case.rows
        if row.clocks is not None
        for clock in (row.clocks.event_us, row.clocks.wall_us, row.clocks.graph_us)
        if clock is not None
    }
    processes = {len(case.processes) for case in cases if case.processes}
    rounds = f"{_range(counts)} interleaved rounds" if counts else "no times"
    return f"{rounds} in {_range(processes)} {'process' if processes == {1} else 'processes'}" if processes else rounds


def _range(counts: set[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def failed(cases: Sequence[Case]) -> Iterator[str]:
    """What has no result and why, each reason once."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for case in cases:
        for row in case.rows:
            word, reason = verdict(row)
            if word in ("failed", "unavailable"):
                said = " ".join((reason or "").removeprefix(f"{word}: ").split())
                reasons.setdefault((row.backend, word, said), []).append(str(case.tokens))
    for (backend, word, reason), counts in reasons.items():
        where = "" if len(counts) == len(cases) else f" at {', '.join(dict.fromkeys(counts))} tokens"
        yield f"{backend} {'failed' if word == 'failed' else 'is unavailable'}{where}: {reason}"


def costs(standings: Sequence[Standing]) -> Iterator[str]:
    """What the winners need beside eager: memory of one call, and seconds until the first is done."""
    said = [sentence for each in standings if (sentence := _cost(each)) is not None]
    yield from said[:_MOST]
    if len(said) > _MOST:
        yield f"And {len(said) - _MOST} more in the table of costs."


def _cost(each: Standing) -> str | None:
    if each.winner is None:
        return None
    eager = next((row for row in each.case.rows if row.backend == BASELINE and row is not each.winner), None)
    peak, theirs = _peak(each.winner), None if eager is None else _peak(eager)
    parts = []
    if peak is not None:
        beside = "" if theirs is None else f", eager {units.megabytes(theirs)}"
        parts.append(f"{units.megabytes(peak)} at its peak above the weights{beside}")
    if (setup := each.winner.setup) is not None:
        total = units.seconds(setup.bind_s + setup.first_call_s)
        parts.append(f"{total} to bind and first call, compilation included")
    if not parts:
        return None
    return (
        f"{each.winner.backend} at {tokens(each.case.tokens)}: {'; '.join(parts)}. Source: {each.case.source}, where "
        "each was read once: there is no interval."
    )


def _peak(row: Row) -> int | None:
    return None if row.memory is None else row.memory.peak_bytes
