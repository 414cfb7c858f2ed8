"""The columns of clocks, and the speedups relative to eager by one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from mlpfusion import units
from mlpfusion.records.clocks import Bound
from mlpfusion.records.profile import BASELINE
from mlpfusion.report import speedup
from mlpfusion.report.profile.columns.column import Column
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Row
    from mlpfusion.report.profile.columns.column import Group, Value

ClockName = Literal["event_us", "graph_us", "wall_us", "kernel_us"]

# In this order: the first clock of which a table has ratios is the one that its `speedup_vs_eager` shows.
CLOCKS: Final[tuple[ClockName, ...]] = ("event_us", "wall_us", "graph_us", "kernel_us")


def clock_of(row: Row, name: ClockName) -> Clock | None:
    """One clock of a row, if it was read."""
    clock: Clock | None = getattr(row.clocks, name, None)
    return clock


def has_spread(found: Clock | Bound) -> bool:
    """Whether a clock or the host's time has what a printed number needs; percentiles exist from 20 samples on."""
    if isinstance(found, Bound):
        return found.host_p20_us is not None and found.host_p80_us is not None
    return found.p20 is not None and found.p80 is not None


def of_clock(name: ClockName, head: str, group: Group, meaning: str) -> Column:
    """The column of one clock: median and percentiles, and in full precision its ratio to eager."""

    def text(row: Row) -> str:
        clock = clock_of(row, name)
        if clock is None or clock.p20 is None or clock.p80 is None:
            return ABSENT
        return units.with_spread(clock.median, clock.p20, clock.p80)

    def data(row: Row) -> dict[str, Value]:
        clock = clock_of(row, name)
        ratio = clock.ratio_to_eager if clock else None
        return {
            name: clock.median if clock else None,
            f"{name}_p20": clock.p20 if clock else None,
            f"{name}_p80": clock.p80 if clock else None,
            f"{name}_n": clock.n if clock else None,
            f"{name}_dropped": clock.dropped if clock else None,
            f"{name}_l2": clock.l2 if clock else None,
            **speedup.fields(f"{name}_speedup", ratio),
            f"{name}_speedup_confidence": ratio.confidence if ratio else None,
            f"{name}_speedup_n": ratio.n if ratio else None,
        }

    return Column(name, head, group, text, data, meaning, of=(name,), disturbed=name != "kernel_us")


def speedup_vs_eager(clock: ClockName) -> Column:
    """The column of speedups relative to eager by one clock."""

    def text(row: Row) -> str:
        read = clock_of(row, clock)
        if row.backend == BASELINE and read is not None:
            return "baseline"
        return speedup.cell(read.ratio_to_eager if read else None)

    def data(row: Row) -> dict[str, Value]:
        read = clock_of(row, clock)
        ratio = read.ratio_to_eager if read else None
        return {**speedup.fields("speedup_vs_eager", ratio), "speedup_vs_eager_clock": clock if ratio else None}

    meaning = "eager's time / the backend's: median over rounds [confidence interval]; above 1 is faster"
    return Column("speedup_vs_eager", "speedup vs eager", "speed", text, data, meaning, disturbed=True)
