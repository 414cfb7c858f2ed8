"""How one figure varies over calls, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion import units
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.trace import Spread


def spread_text(spread: Spread | None) -> str:
    """A median with the 20th and 80th percentiles, or the lowest and highest of fewer than 20 values.

    One value is marked as such: nothing says how it varies.
    """
    if spread is None:
        return ABSENT
    if spread.n == 1:
        return f"{units.plain(spread.median)} (one call)"
    low, high = (spread.low, spread.high) if spread.p20 is None or spread.p80 is None else (spread.p20, spread.p80)
    return units.with_spread(spread.median, low, high)


def spread_meaning(n: int) -> str:
    """What the brackets of `spread_text` hold for `n` values."""
    if n == 1:
        return "of the only call"
    return f"medians of {n} calls [{'20th to 80th percentile' if n >= 20 else 'lowest to highest'}]"


def a_call(spread: Spread | None) -> str:
    """`7.00 µs a call` with its spread, or of the only one."""
    if spread is not None and spread.n == 1:
        return f"{units.plain(spread.median)} µs in one call"
    return f"{spread_text(spread)} µs a call"
