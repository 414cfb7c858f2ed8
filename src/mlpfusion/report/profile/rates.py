"""Computes the two rates of a call in a trace: bytes per second, and the fraction of the roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Row


class Rate(NamedTuple):
    """A rate at the median of a time, and at its 80th and 20th percentiles where there are such."""

    median: float
    low: float | None
    high: float | None


def moved_bytes(row: Row) -> tuple[int, str] | None:
    """The bytes that a row's rate is of, measured ones where there are any, and which they are."""
    found = row.traffic
    if found is not None and found.measured_bytes is not None:
        return found.measured_bytes, "measured"
    return None if found is None or found.derived_bytes is None else (found.derived_bytes, "derived")


def gigabytes_per_second(row: Row) -> Rate | None:
    """The bytes moved over `kernel_us`."""
    moved = moved_bytes(row)
    return None if moved is None else _over_kernel_time(moved[0] / 1e3, row)


def of_roofline(row: Row) -> Rate | None:
    """Fraction of roofline: minimum time at measured peak rates / kernel time."""
    minimum_us = row.traffic.limit_us if row.traffic is not None else None
    return None if minimum_us is None else _over_kernel_time(minimum_us, row)


def _over_kernel_time(amount: float, row: Row) -> Rate | None:
    """`amount` over each of the three times; None where the kernels took none, as in an edited file."""
    clock: Clock | None = row.clocks.kernel_us if row.clocks is not None else None
    if clock is None or not clock.median:
        return None
    return Rate(
        amount / clock.median,
        amount / clock.p80 if clock.p80 else None,
        amount / clock.p20 if clock.p20 else None,
    )
