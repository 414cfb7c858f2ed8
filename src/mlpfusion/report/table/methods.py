"""Says how the figures of a table came to be: where, with what, how often, and what their intervals mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion import units
from mlpfusion.records.bench import Profiles
from mlpfusion.records.choice import Choice
from mlpfusion.records.prediction import Foresight
from mlpfusion.records.profile import Profile
from mlpfusion.report import speedup
from mlpfusion.report.host_load import disturbed
from mlpfusion.report.profile import legend
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of
from mlpfusion.report.table.columns import SPEEDUP
from mlpfusion.report.table.model import Fact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mlpfusion.records.environment import Process, Readings
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.table.model import Table
    from mlpfusion.stages.tabulate.races import Race
    from mlpfusion.stages.tabulate.sources import Source

# What keeps clocks down as the user set it is no fault.
_HARMLESS: Final = ("applications clocks setting", "display clock setting")


class Shown(NamedTuple):
    """What is shown of races: the names of columns, the clock of the speedups, and what they are relative to."""

    columns: Collection[str]
    clock: ClockName
    baseline: str


def facts(sources: Sequence[Source], races: Sequence[Race], table: Table, shown: Shown) -> tuple[Fact, ...]:
    """The methods of a table of races: a fact that holds for all files once, else with the files it is of."""
    said: dict[str, dict[str, list[str]]] = {}
    measured = [source for source in sources if any(race.source is source for race in races)]
    for source in measured:
        own = [race for race in races if race.source is source]
        for label, text in (*_of_source(source, own), *_of_clocks(own, shown)):
            said.setdefault(label, {}).setdefault(text, []).append(source.name)
    found = []
    for label, texts in said.items():
        alone = len(texts) == 1 and len(next(iter(texts.values()))) == len(measured)
        found += [Fact(label, text if alone else f"{text} ({', '.join(names)})") for text, names in texts.items()]
    found += [Fact(label, text) for label, text in _of_table(table, races, shown)]
    return (*found, *(_file(source) for source in measured))


def _file(source: Source) -> Fact:
    created = getattr(source.result, "created", None)
    when = f", measured {created}" if created is not None else ""
    return Fact("file", f"{source.name}{when}, SHA-256 {source.digest}")


# ---- where and with what ---------------------------------------------------------------------------------------------


def _of_source(source: Source, races: Sequence[Race]) -> Iterator[tuple[str, str]]:
    found = source.result
    if isinstance(found, Profile):
        yield from _of_profile(found)
    elif isinstance(found, Profiles):
        for part in (race.part for race in races):
            yield from _of_profile(found.profiles[part or ""])
    elif isinstance(found, Choice):
        where = found.environment
        yield "device", found.device.name
        names = (("mlpfusion", found.mlpfusion), ("torch", where.torch), ("triton", where.triton))
        yield "versions", ", ".join(f"{name} {version or 'not installed'}" for name, version in names)
        yield "driver", where.driver or "not recorded"
        yield "rounds", f"{found.rounds} interleaved rounds for each number of tokens, in one process"
    elif isinstance(found, Foresight):
        peaks = found.peaks
        rates = f"{units.teraflops(peaks.flops_16bit)}, {units.gigabytes_per_second(peaks.bandwidth)}"
        rows = ", ".join(dict.fromkeys(point.measured_on for point in found.points))
        yield (
            "predicted",
            f"for {found.card} ({rates}; {peaks.source}) from rows measured on {rows}; not measured, and not ranked",
        )


def _of_profile(found: Profile) -> Iterator[tuple[str, str]]:
    yield "device", legend.device_line(found)
    yield "clocks seen", _clocks_seen(found)
    yield "versions", legend.versions_line(found)
    if found.device.kind != "cpu" and found.environment.driver is None:
        yield "driver", "not recorded"
    yield "rounds", _rounds(found)
    if not found.complete:
        yield "incomplete", "the run ended early; rows that had not finished are missing"
    throttled = sorted(
        {reason for process in found.processes for reason in process.throttle_reasons or () if reason not in _HARMLESS}
    )
    if throttled:
        yield "throttled", f"the card was held back during the race: {', '.join(throttled)}"
    loads = [process.neighbours for process in found.processes if process.neighbours is not None]
    if loads and (sentence := disturbed(max(loads))) is not None:
        yield "background load", sentence


def _clocks_seen(found: Profile) -> str:
    if found.device.kind == "cpu":
        return "of a CPU none are read"
    seen = []
    for name, field, unit in (
        ("SM clock", "sm_clock_mhz", "MHz"),
        ("power", "power_w", "W"),
        ("temperature", "temperature_c", "°C"),
    ):
        readings = [each for process in found.processes if (each := _readings(process, field)) is not None]
        if readings:
            low, high = min(each.low for each in readings), max(each.high for each in readings)
            seen.append(f"{name} {low:g}–{high:g} {unit}")
    if seen:
        return f"{', '.join(seen)} during the race"
    before = found.environment.sm_clock_mhz
    known = "" if before is None else f"SM clock {before} MHz before the race; "
    return f"{known}not recorded during the race"


def _readings(process: Process, field: str) -> Readings | None:
    read: Readings | None = getattr(process, field)
    return read


def _rounds(found: Profile) -> str:
    """Rounds by process, of the clock that has most: a row that failed in a process has none there."""
    clocks = [c for row in found.rows for name in CLOCKS if name != "kernel_us" and (c := clock_of(row, name))]
    if not clocks:
        return "nothing was raced"
    longest = max(clocks, key=lambda clock: len(clock.rounds))
    processes = len(found.processes) or 1
    lengths = sorted({len(each) for each in longest.rounds}) or [longest.n]
    rounds = "–".join(map(str, lengths[:: max(len(lengths) - 1, 1)]))
    if processes == 1:
        return f"{rounds} interleaved rounds in one process; how much it differs from another is in no interval"
    return f"{rounds} interleaved rounds in each of {processes} processes"


# ---- what the figures mean -------------------------------------------------------------------------------------------


def _of_clocks(races: Sequence[Race], shown: Shown) -> Iterator[tuple[str, str]]:
    for name in CLOCKS:
        read = [found for race in races for each in race.entries if (found := clock_of(each.row, name)) is not None]
        if read and (name in shown.columns or (name == shown.clock and SPEEDUP in shown.columns)):
            yield name, f"{legend.CLOCK_MEANING[name]}, L2 {_listed({each.l2 for each in read})}"


def _listed(words: Collection[str]) -> str:
    return " or ".join(sorted(words))


def _of_table(table: Table, races: Sequence[Race], shown: Shown) -> Iterator[tuple[str, str]]:
    if any("[" in cell.text for line in table.lines for cell in line.cells) and {*CLOCKS, "host_us"} & {*shown.columns}:
        yield "[p20–p80]", "the 20th and 80th percentiles of all rounds behind the median"
    if SPEEDUP in shown.columns:
        yield "speedup", _interval(races, shown.clock, shown.baseline)
    if any(line.kind == "mean" for line in table.lines) or any("mean of" in column.key for column in table.columns):
        yield (
            "mean",
            "the geometric mean of the speedups, one per shape, [Student's 95% interval of their logarithms]: how far "
            "shapes differ, not how exactly each was measured",
        )
    if any(cell.best for line in table.lines for cell in line.cells):
        yield (
            "best",
            "marked in each race: the lowest median, and with it each row whose time over it, round by round, has an "
            "interval that reaches 1",
        )
    standings = {each.standing for race in races for each in race.entries}
    if "emulated" in standings:
        yield "emulated", "run by Triton's interpreter: values are right, times are not taken; never ranked"


def _interval(races: Sequence[Race], clock: ClockName, baseline: str) -> str:
    ratios = [
        (len(read.rounds), ratio)
        for race in races
        for each in race.entries
        if (read := clock_of(each.row, clock)) is not None and (ratio := read.ratio_to_eager) is not None
    ]
    said = f"{baseline}'s {clock} / the backend's; {speedup.DIRECTION}"
    if not ratios:
        return f"{said}; no row could be paired with {baseline}"
    confidence = min(ratio.confidence for _, ratio in ratios)
    ways = []
    if any(processes <= 1 for processes, _ in ratios):
        ways.append("of one process: median of paired rounds, order-statistics interval, no distribution assumed")
    if any(processes > 1 for processes, _ in ratios):
        ways.append("of several: geometric mean of the processes' medians, Student's interval between processes")
    return f"{said}; [{confidence:.0%} interval] {'; '.join(ways)}"
