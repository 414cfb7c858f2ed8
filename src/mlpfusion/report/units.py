"""How a number is written: its unit, and as many digits as its spread supports."""

from __future__ import annotations

import math
from typing import Final

ABSENT: Final = "–"  # not measured; never a zero
_DIGITS: Final = 3  # of a number whose spread is not known or nil
_MOST_DECIMALS: Final = 3


def with_spread(value: float, low: float, high: float) -> str:
    """`212.1 [211.5–213.0]`: down to a tenth of the spread's leading digit, the same for all three."""
    places = _decimals(value, high - low)
    return f"{value:.{places}f} [{low:.{places}f}–{high:.{places}f}]"


def ratio(value: float, low: float, high: float) -> str:
    """`0.943x [0.940–0.946]`: a ratio and its interval."""
    places = max(2, _decimals(value, high - low))
    return f"{value:.{places}f}x [{low:.{places}f}–{high:.{places}f}]"


def plain(value: float) -> str:
    """`value` with three significant digits and no exponent: 0.0123, 1.23, 12.3, 1234."""
    if not math.isfinite(value):
        return "inf" if value > 0 else "-inf" if value < 0 else "nan"
    return f"{value:.{_decimals(value, 0.0)}f}"


def times(value: float) -> str:
    """`2.31x`: a factor without an interval of its own."""
    return f"{plain(value)}x"


def microseconds(value: float) -> str:
    """`212 µs`."""
    return f"{plain(value)} µs"


def seconds(value: float) -> str:
    """`12.3 s`."""
    return f"{plain(value)} s"


def megabytes(size: float) -> str:
    """`354 MB`, in units of 10⁶ bytes."""
    return f"{plain(size / 1e6)} MB"


def mebibytes(size: float) -> str:
    """`50 MiB`, in units of 2²⁰ bytes; GiB from 2³⁰ on."""
    return f"{plain(size / 2**30)} GiB" if size >= 2**30 else f"{plain(size / 2**20)} MiB"


def gigabytes_per_second(rate: float) -> str:
    """`3350 GB/s`, in units of 10⁹ bytes per second."""
    return f"{plain(rate / 1e9)} GB/s"


def teraflops(rate: float) -> str:
    """`989 TFLOP/s`, in units of 10¹² operations per second."""
    return f"{plain(rate / 1e12)} TFLOP/s"


def _decimals(value: float, spread: float) -> int:
    if spread > 0:
        places = 1 - math.floor(math.log10(spread))
    elif value:
        places = _DIGITS - 1 - math.floor(math.log10(abs(value)))
    else:
        places = 0
    # A spread far wider than the value would leave no digit of it.
    return min(max(places, 0), _MOST_DECIMALS if spread > 0 or abs(value) >= 0.01 else 6)
