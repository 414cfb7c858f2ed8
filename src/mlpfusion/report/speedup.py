"""Turns a recorded ratio (candidate / baseline) into the speedup shown (baseline / candidate)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion import units
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.clocks import Ratio

DIRECTION: Final = "above 1 is faster"


class Speedup(NamedTuple):
    """Median of paired baseline/candidate time ratios and its interval: above 1 the candidate is faster."""

    median: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low > 1 or self.high < 1


def of(ratio: Ratio) -> Speedup:
    """The speedup of a recorded ratio; the ends of the interval change places.

    The inverse of a median of an even number of ratios differs from the median of their inverses by less than the
    distance of the two ratios in the middle, which both lie inside the interval.
    """
    return Speedup(inverse(ratio.median), inverse(ratio.high), inverse(ratio.low))


def inverse(ratio: float) -> float:
    """1 / `ratio`; infinite for a ratio of 0, which only an edited file holds."""
    return 1 / ratio if ratio else float("inf")


def cell(ratio: Ratio | None) -> str:
    """`1.060x [1.057–1.064]`, or the mark of an absent number."""
    return ABSENT if ratio is None else units.ratio(*of(ratio))


def fields(prefix: str, ratio: Ratio | None) -> dict[str, float | None]:
    """The speedup and the ends of its interval as numbers under names that begin with `prefix`."""
    found = None if ratio is None else of(ratio)
    return {
        prefix: found and found.median,
        f"{prefix}_low": found and found.low,
        f"{prefix}_high": found and found.high,
    }
