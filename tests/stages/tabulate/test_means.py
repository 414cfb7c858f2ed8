"""Means over shapes: geometric, with an interval over shapes."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.stages.tabulate import means

RATIOS = st.floats(1e-9, 1e9)


def test_the_mean_is_of_ratios_as_factors() -> None:
    found = means.geometric([0.5, 2.0])
    assert found is not None
    assert found.value == pytest.approx(1.0)
    assert found.shapes == 2


def test_the_interval_is_students() -> None:
    found = means.geometric([1.0, math.e, math.e**2])
    assert found is not None
    half = 4.302653 / math.sqrt(3)  # t of 2 degrees of freedom; the logarithms' standard deviation is 1
    assert math.log(found.low) == pytest.approx(1 - half, rel=1e-6)
    assert math.log(found.high) == pytest.approx(1 + half, rel=1e-6)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = random.Random(1)
    held = 0
    for _ in range(2000):
        found = means.geometric([math.exp(rng.gauss(0.3, 0.2)) for _ in range(6)])
        assert found is not None
        held += found.low <= math.exp(0.3) <= found.high
    assert 0.93 < held / 2000 < 0.97


@given(st.lists(RATIOS, max_size=1))
def test_there_is_no_mean_of_fewer_than_two_shapes(ratios: list[float]) -> None:
    assert means.geometric(ratios) is None


@given(st.lists(RATIOS, min_size=2, max_size=60))
def test_the_inverse_ratios_have_the_inverse_mean(ratios: list[float]) -> None:
    one, other = means.geometric(ratios), means.geometric([1 / each for each in ratios])
    assert one is not None
    assert other is not None
    assert one.value * other.value == pytest.approx(1)
    assert one.low <= one.value * (1 + 1e-12)
    assert one.value <= one.high * (1 + 1e-12)


def test_the_best_mean_shares_its_place_with_those_that_some_shapes_prefer() -> None:
    fast = dict.fromkeys(range(6), 1.5)
    near = {shape: 1.5 * (0.9 if shape % 2 else 1.1) for shape in range(6)}
    slow = dict.fromkeys(range(6), 1.0)
    assert means.best({"fast": fast, "near": near, "slow": slow}) == {"fast", "near"}
    assert means.best({"fast": fast, "slow": slow}) == {"fast"}


@pytest.mark.parametrize(
    "speedups",
    [{}, {"a": {1: 2.0, 2: 2.0}}, {"a": {1: 2.0}, "b": {1: 1.0}}, {"a": {1: 2.0, 2: 2.0}, "b": {1: 1.0, 3: 1.0}}],
)
def test_means_over_other_shapes_are_not_ranked(speedups: dict[str, dict[int, float]]) -> None:
    assert means.best(speedups) == frozenset()  # type: ignore[arg-type]
