"""Picks the columns of a table by name or by set, and gives their cells of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.errors import UsageError
from mlpfusion.records.profile import BASELINE
from mlpfusion.report import speedup
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of
from mlpfusion.report.profile.columns.column import Column
from mlpfusion.report.profile.columns.every import all_columns, cell
from mlpfusion.report.profile.columns.speed import BACKEND
from mlpfusion.report.profile.table import RENAMED
from mlpfusion.spec import one_of
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.profile import Row
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.profile.columns.column import Value
    from mlpfusion.stages.tabulate.races import Entry, Race

SPEEDUP: Final = "speedup"
PREDICTED: Final = "predicted_us"
_CLOCK: Final = "clock"  # stands in a set for the clock of which the speedups are
SETS: Final[dict[str, tuple[str, ...]]] = {
    "summary": (_CLOCK, SPEEDUP, "kernels", "error", "peak_bytes", PREDICTED),
    "speed": ("event_us", SPEEDUP, "graph_us", "wall_us", PREDICTED),
    "host": ("kernel_us", "launches", "host_us", "bound", "first_launch_us", "dynamo_us", "compiled_graph_us"),
    "memory": ("peak_bytes", "saved_bytes"),
    "kernels": ("kernels", "mem_ops", "launches", "kernel_us"),
    "traffic": ("round_trips", "hbm_bytes", "bandwidth", "of_roofline"),
    "accuracy": ("error",),
    "training": (_CLOCK, SPEEDUP, "saved_bytes", "peak_bytes", "error"),
}
_SAME: Final = {"speedup_vs_eager": SPEEDUP}  # another name of a column
RANKED: Final[tuple[ClockName, ...]] = ("event_us", "graph_us", "wall_us")  # by which rows of one race are ranked
NAMES: Final = tuple(
    dict.fromkeys(_SAME.get(each, each) for each in (BACKEND.key, *(c.key for c in all_columns()), PREDICTED))
)


def picked(names: Sequence[str] | None, races: Sequence[Race], clock: ClockName, baseline: str) -> list[Column]:
    """The columns that are named, singly or by set; without names, those of the summary.

    Of a set, those are left out that have nothing to show.

    Raises:
        UsageError: a name is neither a column nor a set, or is there twice.
    """
    checked = ("summary",) if names is None else check(names, baseline)
    by_key = {each.key: each for each in every(clock, baseline)}
    rows = [each for race in races for each in race.entries]
    found: dict[str, Column] = {}
    for name in checked:
        for key in SETS.get(name, (name,)):
            column = by_key[clock if key == _CLOCK else key]
            if name not in SETS or any(text(column, each) != ABSENT for each in rows):
                found[column.key] = column
    return list(found.values())


def check(names: Sequence[str], baseline: str = BASELINE) -> list[str]:
    """The names of columns and sets, each once. Errors are as of `picked`."""
    found: list[str] = []
    for name in names:
        if name in RENAMED:
            raise UsageError(f"column {name!r} is now {RENAMED[name]}")
        if name == "speedup_vs_eager" and baseline != BASELINE:
            raise UsageError(f"column {name!r} is relative to eager; with --baseline {baseline!r} it is {SPEEDUP!r}")
        key = _SAME.get(name, name)
        one_of("column", key, (*SETS, *(each for each in NAMES if each not in SETS)))
        if key in found:
            raise UsageError(f"column {key!r} is given twice")
        found.append(key)
    return found


def every(clock: ClockName, baseline: str) -> Iterable[Column]:
    """Every column, in the order of a profile's tables; the speedup is relative to `baseline`, by `clock`."""
    for column in (BACKEND, *all_columns(clock)):
        yield _speedup(clock, baseline) if column.key in _SAME else column
    yield Column(PREDICTED, "predicted µs [80%]", "speed", lambda _: ABSENT, lambda _: {}, "")


def clock_of_ratios(races: Sequence[Race]) -> ClockName:
    """The clock whose speedups are shown: the first that has any."""
    for name in CLOCKS:
        for race in races:
            if any((clock := clock_of(each.row, name)) and clock.ratio_to_eager for each in race.entries):
                return name
    for name in CLOCKS:  # a race of one backend
        if any(clock_of(each.row, name) for race in races for each in race.entries):
            return name
    return CLOCKS[0]


def text(column: Column, entry: Entry) -> str:
    """A row's cell for readers."""
    if column.key == PREDICTED:
        found = entry.predicted
        if found is None or found.predicted_us is None or found.low_us is None or found.high_us is None:
            return ABSENT
        return units.with_spread(found.predicted_us, found.low_us, found.high_us)
    if column.key == "status" and entry.standing == "predicted":
        return "predicted"
    return cell(column, entry.row)


def data(column: Column, entry: Entry) -> dict[str, Value]:
    """A row's values for programs."""
    if column.key != PREDICTED:
        return column.data(entry.row)
    found = entry.predicted
    names = ("predicted_us", "low_us", "high_us")
    values = (getattr(found, name, None) for name in names)
    return dict(zip(("predicted_us", "predicted_us_low", "predicted_us_high"), values, strict=True))


def _speedup(clock: ClockName, baseline: str) -> Column:
    def shown(row: Row) -> str:
        read = clock_of(row, clock)
        if row.backend == baseline and read is not None:
            return "baseline"
        return speedup.cell(read.ratio_to_eager if read else None)

    def values(row: Row) -> dict[str, Value]:
        read = clock_of(row, clock)
        ratio = read.ratio_to_eager if read else None
        return {
            **speedup.fields(SPEEDUP, ratio),
            f"{SPEEDUP}_confidence": ratio.confidence if ratio else None,
            f"{SPEEDUP}_n": ratio.n if ratio else None,
            f"{SPEEDUP}_clock": clock if ratio else None,
            "baseline": baseline,
        }

    head = f"speedup vs {baseline}"
    return Column(SPEEDUP, head, "speed", shown, values, "the baseline's time / the backend's", disturbed=True)
