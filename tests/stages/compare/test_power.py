"""How many processes would decide: against simulated normal processes, and its limits."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.stages.compare.difference import ENOUGH, Process, between, within
from mlpfusion.stages.compare.power import MOST, POWER, decided, processes_needed
from mlpfusion.stages.compare.verdict import word


def drawn(rng: random.Random, n: int, log: float, spread: float) -> list[Process]:
    return [Process(rng.gauss(log, spread), 0.0, 60) for _ in range(n)]


@pytest.mark.parametrize(
    ("n", "log", "spread"), [(5, 0.02, 0.006), (5, 0.0, 0.003), (8, 0.003, 0.004), (12, 0.015, 0.007), (5, 0.0, 0.007)]
)
def test_the_probability_is_that_of_simulated_processes(n: int, log: float, spread: float) -> None:
    rng = random.Random(2)
    count = 0
    for _ in range(400):
        found = between(drawn(rng, n, 0.0, spread), drawn(rng, n, log, spread))
        count += word(found, found.p) != "inconclusive"
    said = decided(n, log, spread, level=0.01, limit=math.log1p(0.01))
    assert count / 400 == pytest.approx(said, abs=0.08)  # 3 standard deviations, and that Welch's freedom is not pooled


@given(st.floats(-0.05, 0.05), st.floats(0.0005, 0.02), st.integers(1, 20))
def test_the_number_decides_and_one_less_does_not(log: float, spread: float, rows: int) -> None:
    found = between([Process(0.0, 0.0, 60)], [Process(log, 0.0, 60)], spread)
    needed = processes_needed(found, rows)
    say = {"level": 0.01 / rows, "limit": math.log1p(0.01)}
    if needed is None:
        assert decided(MOST, log, spread, **say) < POWER
        return
    assert ENOUGH <= needed <= MOST
    assert decided(needed, log, spread, **say) >= POWER
    assert needed == ENOUGH or decided(needed - 1, log, spread, **say) < POWER


@pytest.mark.parametrize("log", [math.log1p(0.01), -math.log1p(0.01)])
def test_no_number_decides_at_the_threshold(log: float) -> None:
    assert processes_needed(between([Process(0.0, 0.0, 60)], [Process(log, 0.0, 60)])) is None


def test_more_are_promised_where_the_spread_is_known_less_well() -> None:
    known = between([Process(0.0, 0.0, 60)], [Process(0.0, 0.0, 60)], 0.007)
    five = [Process(0.007 * place / math.sqrt(2.5), 0.0, 60) for place in (-2, -1, 0, 1, 2)]
    assert between(five, five).spread == pytest.approx(0.007)
    assert processes_needed(between(five, five)) > processes_needed(known)


def test_a_paired_comparison_needs_fewer() -> None:
    one = [Process(0.005, 0.0, 60)]
    assert processes_needed(within(one)) < processes_needed(between([Process(0.0, 0.0, 60)], one))
