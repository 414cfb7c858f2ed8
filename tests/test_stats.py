"""Medians, quantiles and intervals."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.records.clocks import Samples
from mlpfusion.stats import CONFIDENCE, median_interval, summarise


def series(values, backend="a") -> Samples:
    return Samples(backend=backend, clock="wall_us", l2="cold", values=tuple(values))


def test_no_quantile_from_fewer_than_twenty_samples():
    few = summarise(series(range(1, 20)))
    assert (few.n, few.median, few.p20, few.p80) == (19, 10, None, None)
    enough = summarise(series(range(1, 22)))
    assert (enough.n, enough.median, enough.p20, enough.p80) == (21, 11, 5, 17)


def test_dropped_samples_are_counted_and_kept_out():
    clock = summarise(series([1.0, None, 3.0]))
    assert (clock.n, clock.dropped, clock.median, clock.samples) == (2, 1, 2.0, (1.0, 3.0))


def test_the_ratio_pairs_rounds():
    base = [100.0 + 10 * (i % 7) for i in range(40)]
    clock = summarise(series([2 * value for value in base]), series(base, "eager"))
    assert clock.ratio_to_eager.median == 2.0
    assert clock.ratio_to_eager.low == clock.ratio_to_eager.high == 2.0
    assert clock.ratio_to_eager.baseline == "eager"


def test_a_round_dropped_on_either_side_is_not_paired():
    mine = [1.0, None, 3.0] + [4.0] * 10
    base = [1.0, 1.0, None] + [2.0] * 10
    assert summarise(series(mine), series(base)).ratio_to_eager.n == 11


@pytest.mark.parametrize("n", range(6))
def test_too_few_rounds_have_no_interval(n):
    assert median_interval(n) is None
    assert summarise(series([1.0] * max(n, 1)), series([1.0] * max(n, 1))).ratio_to_eager is None


@given(st.integers(6, 400))
def test_the_interval_holds_its_confidence_and_no_narrower_one_does(n):
    low, high = median_interval(n)
    assert high == n - 1 - low

    def coverage(rank: int) -> float:  # P(the median lies between the sorted samples `rank` and `n - 1 - rank`)
        return 1 - 2 * sum(math.comb(n, k) for k in range(rank + 1)) / 2**n

    assert coverage(low) >= CONFIDENCE
    assert coverage(low + 1) < CONFIDENCE


def test_the_interval_covers_the_true_median_about_as_often_as_it_says():
    source = random.Random(1)
    hits = 0
    for _ in range(400):
        values = sorted(source.lognormvariate(0, 1) for _ in range(30))
        low, high = median_interval(30)
        hits += values[low] <= 1.0 <= values[high]
    assert hits / 400 > 0.92
