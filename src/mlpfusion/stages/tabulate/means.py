"""Averages speedups over shapes: the geometric mean with its interval, and which backends have the best."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.stages.compare import student

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

CONFIDENCE: Final = 0.95
_LARGEST: Final = 700.0  # of a logarithm whose exponential is a float


class Mean(NamedTuple):
    """A geometric mean over `shapes`, at least two of them, and the ends of its interval."""

    value: float
    low: float
    high: float
    shapes: int


def geometric(ratios: Sequence[float]) -> Mean | None:
    """The geometric mean of one ratio per shape with Student's interval of their logarithms; None of fewer than two.

    The interval says how far shapes differ, what each was measured with being a part of it; it is one for shapes like
    these, not for these alone.
    """
    if len(ratios) < 2:
        return None
    logs = [math.log(each) for each in ratios]
    middle = statistics.fmean(logs)
    half = student.quantile(1 - CONFIDENCE, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Mean(_exp(middle), _exp(middle - half), _exp(middle + half), len(ratios))


def best(speedups: Mapping[str, Mapping[Hashable, float]]) -> frozenset[str]:
    """The names with the highest geometric mean and those whose ratio to it, shape by shape, may be 1.

    `speedups` has a speedup per shape by name. Names that lack a shape of another are no match for it: there is no best
    then, nor is there one of fewer than two names or two shapes.
    """
    shapes = {frozenset(each) for each in speedups.values()}
    if len(speedups) < 2 or len(shapes) != 1 or len(next(iter(shapes))) < 2:
        return frozenset()
    first = max(speedups, key=lambda name: math.fsum(map(math.log, speedups[name].values())))
    over = {
        name: geometric([speedups[first][shape] / value for shape, value in own.items()])
        for name, own in speedups.items()
    }
    return frozenset(name for name, mean in over.items() if name == first or mean is None or mean.low <= 1)


def _exp(value: float) -> float:
    return math.exp(max(min(value, _LARGEST), -_LARGEST))
