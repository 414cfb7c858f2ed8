"""Formats numbers with their unit and the digits that the spread supports, and bounds those that files hold."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

ABSENT: Final = "–"  # not measured; never a zero
_DIGITS: Final = 3  # of a number whose spread is not known or nil
_MOST_DECIMALS: Final = 3


def with_spread(value: float, low: float, high: float) -> str:
    """`212.1 [211.5–213.0]` or `85000 [77000–91000]`: two digits of the spread, the same place for all three.

    Where that is coarser than two digits of the smallest of the three, those decide: no time that is not 0 prints as 0.
    """
    return _three(value, low, high, _places_of_three(value, low, high))


def ratio(value: float, low: float, high: float) -> str:
    """`0.943x [0.940–0.946]`: a ratio and its interval."""
    return _three(value, low, high, max(2, _places_of_three(value, low, high)), unit="x")


def plain(value: float) -> str:
    """`value` with three significant digits and no exponent: 0.00123, 1.23, 12.3, 1234; `<0.000001` below that."""
    if not math.isfinite(value):
        return "inf" if value > 0 else "-inf" if value < 0 else "nan"
    if 0 < value < 1e-6:
        return "<0.000001"
    return _fixed(value, max(_places(value, 0.0), 0))


def times(value: float) -> str:
    """`2.31x`: a factor without an interval."""
    return f"{plain(value)}x"


def percent(share: float | None) -> str:
    """`12%`: a share."""
    return ABSENT if share is None else f"{share:.0%}"


def error_ratio(error: float | None, baseline: float) -> str:
    """`1.02`: an error over that of the baseline; where that is no number, the two errors; None is nan or inf."""
    if error is None:
        return "nan or inf"
    if baseline and math.isfinite(error / baseline):
        return plain(error / baseline)
    return "0" if error == 0 else f"{small(error)} over {small(baseline)}"


def small(value: float) -> str:
    """A relative error: `4.12e-05`, three digits with an exponent."""
    return "0" if value == 0 else f"{value:.2e}"


def microseconds(value: float) -> str:
    """`212 µs`."""
    return f"{plain(value)} µs"


def seconds(value: float) -> str:
    """`12.3 s`; below a millisecond `<0.001 s`."""
    return f"{plain(value) if value >= 0.001 else '<0.001'} s"


def duration(seconds: float) -> str:
    """`40 s`, `12 min` or `3 h 20 min`: a time that is waited for."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{max(1, round(seconds))} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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


def _three(value: float, low: float, high: float, places: int, *, unit: str = "") -> str:
    middle, first, last = (_fixed(number, places) for number in (value, low, high))
    return f"{middle}{unit} [{first}–{last}]"


def _places_of_three(value: float, low: float, high: float) -> int:
    """The places that the spread supports, or those that the smallest of the three needs to keep two digits."""
    smallest = min((abs(number) for number in (value, low, high) if number), default=0.0)
    return max(_places(value, high - low), _second_digit(smallest)) if smallest else 0


def _places(value: float, spread: float) -> int:
    """Decimal places that are worth printing; negative ones are tens, hundreds and so on."""
    if spread > 0:
        return min(_second_digit(spread), _MOST_DECIMALS)
    if value == 0:
        return 0
    return min(_second_digit(value) + _DIGITS - 2, _MOST_DECIMALS if abs(value) >= 0.01 else 6)


def _second_digit(value: float) -> int:
    """The place of the second significant digit of a number that is not 0."""
    return 1 - math.floor(math.log10(abs(value))) if math.isfinite(value) else 0


def _fixed(value: float, places: int) -> str:
    return f"{round(value, max(places, -15)):.{max(places, 0)}f}"  # -15: a float has no more digits to drop


# ---- types of numbers in files, which refuse values that no measurement can produce ----------------------------------

_MOST_COUNTED: Final = 2**63 - 1  # what 64 bits hold
_LONGEST_TIME: Final = 1e15  # µs, or seconds; the first are thirty years

# How many, of bytes, operations or kernels: a file that says less than none is damaged.
Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST_COUNTED)]
Some = Annotated[int, msgspec.Meta(ge=1, le=_MOST_COUNTED)]
# A time, in the unit of its field. A kernel may be shorter than the clock's tick; a call takes longer than none.
Time = Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_TIME)]
PositiveTime = Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_TIME)]
# One time over another, or one error over another; errors themselves are relative ones.
Factor = Annotated[float, msgspec.Meta(ge=1e-30, le=1e30)]
Error = Annotated[float, msgspec.Meta(ge=0, le=1e300)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e30)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
# What a sensor reads, in the unit of its field: MHz, W or °C; a card can be below freezing.
Reading = Annotated[float, msgspec.Meta(ge=-300, le=1e9)]
