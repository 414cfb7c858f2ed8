"""Tail probabilities and quantiles of Student's t, by the incomplete beta function.

With infinitely many degrees of freedom it is the normal distribution.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import Final

_EPSILON: Final = 1e-15
_TINY: Final = 1e-300
_MOST_TERMS: Final = 10_000  # of the continued fraction: some twenty are enough but for 10⁶ degrees of freedom and more
_NORMAL: Final = NormalDist()
_NEARLY_NORMAL: Final = 1e7  # degrees of freedom from which the two agree in six digits down to p = 1e-9


def two_sided(t: float, freedom: float) -> float:
    """The probability that |T| is at least |t|."""
    if freedom >= _NEARLY_NORMAL:
        return math.erfc(abs(t) / math.sqrt(2))
    if not math.isfinite(t):
        return 0.0
    return _incomplete_beta(freedom / (freedom + t * t), t * t / (freedom + t * t), freedom / 2, 0.5)


@functools.lru_cache(maxsize=4096)
def quantile(level: float, freedom: float) -> float:
    """The t > 0 whose `two_sided` is `level`, 0 < level < 1."""
    if freedom >= _NEARLY_NORMAL:
        return _NORMAL.inv_cdf(1 - level / 2)
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > level:
        low, high = high, 2 * high
    t = low or high / 2
    while high - low > 1e-10 * high:  # Newton's steps within the bracket, six or so where halving takes 33
        beyond = two_sided(t, freedom) - level
        low, high = (t, high) if beyond > 0 else (low, t)
        step = beyond / (2 * _density(t, freedom))
        if abs(step) <= 1e-12 * t:
            return t
        t = t + step if low < t + step < high else (low + high) / 2
    return high


def _density(t: float, freedom: float) -> float:
    """Of T at t."""
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(math.pi * freedom) / 2
    return math.exp(log_scale - (freedom + 1) / 2 * math.log1p(t * t / freedom))


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularised I_x(a, b), `rest` = 1 - x: DLMF 8.17.22, which converges fast below (a + 1) / (a + b + 2)."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    if x > (a + 1) / (a + b + 2):
        return 1 - math.exp(log_front) / (b * _fraction(rest, b, a))
    return math.exp(log_front) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction 1 + d1 / (1 + d2 / (1 + ...)) by the modified Lentz algorithm."""
    value, c, d = 1.0, 1.0, 0.0
    for term in range(1, _MOST_TERMS):
        m, odd = divmod(term, 2)
        if odd:
            coefficient = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            coefficient = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + coefficient * d or _TINY)
        c = 1 + coefficient / c or _TINY
        value *= c * d
        if abs(c * d - 1) < _EPSILON:
            break
    return value
