"""Calculates how many processes a side would decide a comparison that was inconclusive."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from mlpfusion.stages.compare import student
from mlpfusion.stages.compare.difference import ENOUGH, LEVEL
from mlpfusion.stages.compare.verdict import THRESHOLD

if TYPE_CHECKING:
    from mlpfusion.stages.compare.difference import Difference

POWER: Final = 0.97  # what is promised is 95%: Welch's degrees of freedom are fewer than those used here
MOST: Final = 100  # processes a side; nobody runs more
# A spread of few processes is itself uncertain: what is promised holds if the true one is up to this quantile of it.
_ASSURANCE: Final = 0.85
_CUTS: Final = 16  # equally likely values of the spread over which the probability is averaged
_NORMAL: Final = NormalDist()
_QUANTILES: Final = tuple(_NORMAL.inv_cdf((cut + 0.5) / _CUTS) for cut in range(_CUTS))


def processes_needed(found: Difference, outcomes: int = 1, threshold: float = THRESHOLD) -> int | None:
    """The least number of processes a side that decides with `POWER` if the difference is what was estimated.

    `outcomes` is the number that Holm's correction is for. None where more than `MOST` would be needed: a difference
    close to the threshold is neither beyond it nor within it, however often it is measured.
    """
    spread = found.spread / _relative(_NORMAL.inv_cdf(1 - _ASSURANCE), found.freedom)
    level, limit = LEVEL / outcomes, math.log1p(threshold)

    def decides(n: int) -> bool:
        return decided(n, found.log, spread, level=level, limit=limit, paired=found.paired) >= POWER

    low, high = ENOUGH, MOST
    if not decides(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle + 1, high)
    return high


def decided(n: int, log: float, spread: float, *, level: float, limit: float, paired: bool = False) -> float:
    """The probability that `n` processes a side give a verdict on a true difference, if this is their true spread."""
    error = spread * math.sqrt((1 if paired else 2) / n)
    if error == 0:
        return float(abs(log) != limit)
    freedom = (n - 1) * (1 if paired else 2)
    beyond, inside = student.quantile(level, freedom), student.quantile(LEVEL, freedom)
    total = 0.0
    for cut in _QUANTILES:
        seen = error * _relative(cut, freedom)
        far, near = max(limit, beyond * seen), max(0.0, limit - inside * seen)
        total += _NORMAL.cdf((-far - log) / error) + _NORMAL.cdf((log - far) / error)
        total += _NORMAL.cdf((near - log) / error) - _NORMAL.cdf((-near - log) / error)
    return total / _CUTS


def _relative(cut: float, freedom: float) -> float:
    """A quantile of an estimated standard deviation over the true one: chi-squared by Wilson and Hilferty 1931."""
    if math.isinf(freedom):
        return 1.0
    share = 2 / (9 * freedom)
    return math.sqrt(max(1 - share + cut * math.sqrt(share), 0.1) ** 3)
