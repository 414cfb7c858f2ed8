"""Statistics of samples: median, percentiles, and the paired ratio to a baseline with its interval."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from mlpfusion.records.clocks import Clock, Ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Samples

# No quantile from fewer samples than this.
QUANTILE_SAMPLES: Final = 20
CONFIDENCE: Final = 0.95


def fifths(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The 20th and 80th percentiles, or Nones for fewer than QUANTILE_SAMPLES values."""
    if len(values) < QUANTILE_SAMPLES:
        return None, None
    cuts = statistics.quantiles(values, n=5, method="inclusive")
    return cuts[0], cuts[3]


def summarise(samples: Samples, baseline: Samples | None = None) -> Clock:
    """The median and spread of one series and its paired ratio to a baseline sampled in the same rounds."""
    kept = [value for value in samples.values if value is not None]
    p20, p80 = fifths(kept)
    return Clock(
        n=len(kept),
        median=statistics.median(kept),
        p20=p20,
        p80=p80,
        l2=samples.l2,
        dropped=len(samples.values) - len(kept),
        ratio_to_eager=None if baseline is None else _ratio(samples, baseline),
        rounds=(samples.values,),
    )


def _ratio(samples: Samples, baseline: Samples) -> Ratio | None:
    """Median of per-round ratios with the order-statistics interval, which assumes nothing about their distribution."""
    ratios = sorted(
        mine / theirs
        for mine, theirs in zip(samples.values, baseline.values, strict=True)
        if mine is not None and theirs is not None
    )
    bounds = median_interval(len(ratios))
    if bounds is None:
        return None
    low, high = bounds
    return Ratio(
        baseline=baseline.backend,
        median=statistics.median(ratios),
        low=ratios[low],
        high=ratios[high],
        confidence=CONFIDENCE,
        n=len(ratios),
    )


def median_interval(n: int, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """0-based ranks of the sorted sample between which the median is with at least `confidence`; None for small n.

    The number of samples below the median is Binomial(n, 1/2); see Hahn and Meeker, Statistical Intervals, 5.2.
    """
    below = 1
    cumulative, total = 1, 2**n
    if 2 * cumulative > (1 - confidence) * total:
        return None
    term = 1
    while True:
        term = term * (n - below + 1) // below
        if 2 * (cumulative + term) > (1 - confidence) * total:
            return below - 1, n - below
        cumulative += term
        below += 1
