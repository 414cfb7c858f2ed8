"""Statistics of samples: median, percentiles, and the paired ratio to a baseline with its interval."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Final

from mlpfusion.records.clocks import Clock, Ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Samples

    Rounds = Sequence[Sequence[float | None]]  # by process

# No quantile from fewer samples than this.
QUANTILE_SAMPLES: Final = 20
_LEAST: Final = 1e-300  # of a ratio; its inverse is the most
CONFIDENCE: Final = 0.95
# The 97.5% quantile of Student's t with 1, 2, 3, ... degrees of freedom, for as many processes as may be raced.
_STUDENT: Final = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452,
)  # fmt: skip


def fifths(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The 20th and 80th percentiles, or Nones for fewer than QUANTILE_SAMPLES values."""
    if len(values) < QUANTILE_SAMPLES:
        return None, None
    cuts = statistics.quantiles(values, n=5, method="inclusive")
    return cuts[0], cuts[3]


def summarise(samples: Samples, baseline: Samples | None = None) -> Clock:
    """The median and spread of one series and its paired ratio to a baseline sampled in the same rounds."""
    return of_processes([samples], None if baseline is None else [baseline])


def of_processes(series: Sequence[Samples], baseline: Sequence[Samples] | None = None) -> Clock:
    """The same over several processes: the median and spread of all their rounds, and the ratio between processes."""
    rounds = _rounds(series)
    kept = [value for one in rounds for value in one if value is not None]
    p20, p80 = fifths(kept)
    return Clock(
        n=len(kept),
        median=statistics.median(kept),
        p20=p20,
        p80=p80,
        l2=series[0].l2,
        dropped=sum(map(len, rounds)) - len(kept),
        ratio_to_eager=None if baseline is None else _ratio(rounds, _rounds(baseline), baseline[0].backend),
        rounds=rounds,
    )


def _rounds(series: Sequence[Samples]) -> tuple[tuple[float | None, ...], ...]:
    return tuple(one.values for one in series)


def paired(clock: Clock, baseline: Clock, name: str) -> Ratio | None:
    """The ratio of two clocks of one race, `name` being the baseline's; None where their rounds cannot be paired."""
    if not all(each.is_paired and min(each.samples) > 0 for each in (clock, baseline)):
        return None
    if [len(rounds) for rounds in clock.rounds] != [len(rounds) for rounds in baseline.rounds]:
        return None
    return _ratio(clock.rounds, baseline.rounds, name)


def _ratio(rounds: Rounds, baseline: Rounds, name: str) -> Ratio | None:
    """The ratio of paired rounds, within the one process or between those that have rounds of both."""
    found = [
        [_quotient(a, b) for a, b in zip(mine, theirs, strict=True) if a is not None and b is not None]
        for mine, theirs in zip(rounds, baseline, strict=True)
    ]
    processes = [sorted(ratios) for ratios in found if ratios]
    if len(processes) > 1:
        return _between(processes, name)
    return _within(processes[0], name) if processes else None


def _quotient(a: float, b: float) -> float:
    """a / b within what has a logarithm: a file may hold times of 1e-320 µs."""
    return min(max(a / b, _LEAST), 1 / _LEAST)


def _between(processes: Sequence[Sequence[float]], baseline: str) -> Ratio:
    """The geometric mean of the processes' medians with Student's interval of their logarithms.

    Rounds of one process share what differs between processes, and tell nothing of it.
    """
    logs = [math.log(statistics.median(ratios)) for ratios in processes]
    mean = statistics.fmean(logs)
    half = _STUDENT[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half)
    n = sum(map(len, processes))
    return Ratio(baseline=baseline, median=math.exp(mean), low=low, high=high, confidence=CONFIDENCE, n=n)


def _within(ratios: Sequence[float], baseline: str) -> Ratio | None:
    """Median of sorted per-round ratios with the order-statistics interval, which assumes no distribution."""
    bounds = median_interval(len(ratios))
    if bounds is None:
        return None
    low, high = bounds
    return Ratio(
        baseline=baseline,
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
