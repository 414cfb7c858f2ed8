"""Student's t against tabled values, closed forms and, where it is installed, SciPy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.stages.compare.student import quantile, two_sided

# Two-sided 99%, of any textbook (Abramowitz and Stegun, table 26.10).
TABLE = {1: 63.657, 2: 9.925, 3: 5.841, 4: 4.604, 5: 4.032, 8: 3.355, 10: 3.169, 30: 2.750, 120: 2.617, math.inf: 2.576}


@pytest.mark.parametrize(("freedom", "t"), TABLE.items())
def test_the_tabled_quantiles(freedom: float, t: float) -> None:
    assert quantile(0.01, freedom) == pytest.approx(t, abs=5.1e-4)


@given(st.floats(0, 1e4))
def test_one_and_two_degrees_of_freedom_have_closed_forms(t: float) -> None:
    assert two_sided(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-6, abs=1e-12)
    assert two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-6, abs=1e-9)


@given(st.floats(1e-9, 0.99), st.floats(1, 1e6) | st.just(math.inf))
def test_a_quantile_is_what_has_that_tail(level: float, freedom: float) -> None:
    assert two_sided(quantile(level, freedom), freedom) == pytest.approx(level, rel=1e-5)


@given(st.floats(-50, 50), st.floats(1, 1e6))
def test_scipy_agrees(t: float, freedom: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert two_sided(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), rel=1e-7, abs=1e-14)


@pytest.mark.parametrize("freedom", [1, 4.5, math.inf])
def test_the_ends(freedom: float) -> None:
    assert two_sided(0, freedom) == 1
    assert two_sided(math.inf, freedom) == 0
    assert two_sided(-3.0, freedom) == two_sided(3.0, freedom)
