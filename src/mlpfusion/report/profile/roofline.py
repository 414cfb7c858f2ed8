"""Compares the time of each launch with its minimum time at the card's measured peak rates, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion import units
from mlpfusion.report.grid import tabulated
from mlpfusion.report.profile.data_flow import label
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Row
    from mlpfusion.records.traffic import Ceilings, Step

_HEADS = ["backend", "#", "kernel", "MB", "µs", "minimum µs", "of roofline", "bound by", "GB/s", "TFLOP/s", "note"]


def ceilings_line(found: Ceilings) -> str:
    """The card's measured rates in one line."""
    best = max(found.products, key=lambda one: one.flops_per_second)
    copies = ", ".join(
        f"{units.gigabytes_per_second(one.bytes_per_second)} at {units.mebibytes(one.bytes)}" for one in found.copies
    )
    return (
        f"copies {copies}; matrix product {best.m}x{best.n}x{best.k} {units.teraflops(best.flops_per_second)} "
        f"({found.dtype}, L2 cold, medians of {min(one.n for one in found.copies)})"
    )


def roofline(rows: Sequence[Row], *, github: bool) -> str | None:
    """One line for each launch of a row with a minimum time; None where no row has one."""
    cells = [
        [row.backend if first else "", *_cells(index, step)]
        for row in rows
        if row.traffic is not None and row.traffic.limit_us is not None
        for index, (step, first) in enumerate(_firsts(row.traffic.steps), 1)
    ]
    if not cells:
        return None
    return tabulated(cells, _HEADS, [False, True, False, *[True] * 4, False, True, True, False], github=github)


def _firsts(steps: Sequence[Step]) -> list[tuple[Step, bool]]:
    return [(step, index == 0) for index, step in enumerate(steps)]


def _cells(index: int, step: Step) -> list[str]:
    time = step.time_us
    flops = ABSENT if step.flops is None or not time else units.plain(step.flops / time / 1e6)
    return [
        str(index),
        label(step),
        units.plain(step.bytes / 1e6),
        ABSENT if time is None else units.plain(time),
        ABSENT if step.limit_us is None else units.plain(step.limit_us),
        ABSENT if step.limit_us is None or not time else f"{step.limit_us / time:.0%}",
        step.bound or ABSENT,
        ABSENT if not time else units.plain(step.bytes / time / 1e3),
        flops,
        step.above or "",
    ]
