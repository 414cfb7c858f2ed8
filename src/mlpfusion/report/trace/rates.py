"""A table of what matrix products and elementwise operators reach, by shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.report.grid import tabulated
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.breakdown import Rate

_LISTED: Final = 12


def rate_table(rates: Sequence[Rate], *, github: bool) -> tuple[str, str]:
    """Its title and the table: those with the most time first, and how many more there are."""
    cells = [
        [str(one.count), one.operator, _shape(one), one.dtype or ABSENT, units.plain(one.us), _rate(one), _peak(one)]
        for one in rates[:_LISTED]
    ]
    left = len(rates) - len(cells)
    if left:
        cells.append(["", f"and {left} more; --json has them all", *[""] * 5])
    heads = ["number", "operator", "shape", "type", "µs each", "rate", "of the card's peak"]
    right = [True, False, False, False, True, True, True]
    return "Rates by shape (M x N x K of products)", tabulated(cells, heads, right, github=github)


def _shape(one: Rate) -> str:
    return " x ".join(str(length) for length in one.shape)


def _rate(one: Rate) -> str:
    """No figure above what the card can do."""
    if one.above_peak:
        return "error"
    return f"{one.per_second / 1e12:.3g} TFLOP/s" if one.unit == "FLOP" else f"{one.per_second / 1e9:,.0f} GB/s"


def _peak(one: Rate) -> str:
    if one.above_peak:
        return "above it: from a cache, or of other sizes"
    if one.peak_share is None:
        return ABSENT
    return f"{one.peak_share:.0%}" if one.peak_share >= 0.01 else f"{one.peak_share:.1%}"
