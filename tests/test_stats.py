"""Medians, quantiles and intervals."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mlpfusion import limits, stats
from mlpfusion.records.clocks import Samples
from mlpfusion.stats import CONFIDENCE, median_interval, of_processes, paired, summarise


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


def of(*values: float | None, backend: str = "triton") -> Samples:
    return Samples(backend=backend, clock="event_us", l2="cold", values=values)


def test_several_processes_are_one_clock_with_an_interval_between_them() -> None:
    base = [of(*[100.0] * 20, backend="eager") for _ in range(5)]
    mine = [of(*[100.0 * factor] * 20) for factor in (0.90, 0.91, 0.92, 0.93, 0.94)]
    clock = of_processes(mine, base)
    assert clock.rounds == tuple(each.values for each in mine)
    assert (clock.n, clock.median) == (100, 92.0)
    ratio = clock.ratio_to_eager
    logs = [math.log(factor) for factor in (0.90, 0.91, 0.92, 0.93, 0.94)]
    half = 2.7764 * statistics.stdev(logs) / math.sqrt(5)
    assert ratio.median == pytest.approx(math.exp(statistics.fmean(logs)))
    assert ratio.low == pytest.approx(math.exp(statistics.fmean(logs) - half))
    assert ratio.high == pytest.approx(math.exp(statistics.fmean(logs) + half))
    assert (ratio.n, ratio.confidence) == (100, 0.95)


def test_a_process_without_a_backend_says_nothing_of_its_ratio() -> None:
    base = [of(*[100.0] * 20, backend="eager")] * 2
    clock = of_processes([of(*[90.0] * 20), of(*[None] * 20)], base)
    assert clock.ratio_to_eager == summarise(of(*[90.0] * 20), base[0]).ratio_to_eager
    assert (clock.n, clock.dropped) == (20, 20)


def test_students_quantiles_hold_their_probability() -> None:
    """The density of Student's t, integrated from 0 to the quantile by Simpson's rule, leaves 2.5% above it."""
    for freedom, quantile in enumerate(stats._STUDENT, 1):
        scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
        width = quantile / 2000
        parts = [
            (1 if i in (0, 2000) else 4 if i % 2 else 2) * (1 + (i * width) ** 2 / freedom) ** (-(freedom + 1) / 2)
            for i in range(2001)
        ]
        assert scale * width / 3 * sum(parts) == pytest.approx(0.475, abs=5e-6)
    assert len(stats._STUDENT) == limits.PROCESSES.most - 1


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ((), ((1.0,) * 20,)),
        (((1.0,) * 20,), ((1.0,) * 19,)),
        (((1.0,) * 20,), ((1.0,) * 20,) * 2),
        (((0.0,) * 20,), ((1.0,) * 20,)),
    ],
)
def test_rounds_that_are_not_of_one_race_have_no_ratio(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    good = summarise(of(*[1.0] * 20))
    assert paired(good, good, "eager").median == 1.0
    assert paired(replace(good, rounds=mine), replace(good, rounds=theirs), "eager") is None


@pytest.mark.parametrize("times", [(5e-324, 1.0), (1.0, 5e-324), (1e15, 5e-324)])
@pytest.mark.parametrize("number", [1, 3])
def test_times_that_a_file_may_hold_have_a_ratio(times: tuple[float, float], number: int) -> None:
    rounds, others = (((each,) * 20,) * number for each in times)
    mine, theirs = stats._ratio(rounds, others, "eager"), stats._ratio(others, others, "eager")
    assert mine is not None
    assert theirs is not None
    assert all(math.isfinite(each) and each > 0 for each in (mine.median, mine.low, mine.high))
    assert theirs.median == pytest.approx(1.0)
