"""Differences between processes: medians of rounds, Welch's interval, and what stands in for a spread unknown."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.stages.compare import student
from mlpfusion.stages.compare.difference import PRIOR, PRIORS, Process, apart, between, processes, within


def process(log: float, noise: float = 0.0, rounds: int = 60) -> Process:
    return Process(log, noise, rounds)


def side(*logs: float, noise: float = 0.0) -> list[Process]:
    return [process(log, noise) for log in logs]


@given(st.floats(0.2, 5), st.lists(st.floats(1, 1e4), min_size=20, max_size=40))
def test_what_moves_all_rows_of_a_round_is_taken_out(factor: float, machine: list[float]) -> None:
    rounds = [tuple(factor * each for each in machine)]
    (found,) = processes(rounds, [tuple(machine)])
    assert found.log == pytest.approx(math.log(factor), abs=1e-9)
    assert found.noise == pytest.approx(0, abs=1e-9)


def test_a_round_counts_where_both_have_a_time() -> None:
    rounds = (*range(1, 31), None, None, 5.0)
    control = (*([1.0] * 30), 1.0, None, None)
    (found,) = processes([rounds], [control])
    assert found.rounds == 30
    assert found.log == pytest.approx((math.log(15) + math.log(16)) / 2)


@pytest.mark.parametrize("few", [(), (1.0,), (1.0,) * 19, (None,) * 60, (0.0,) * 60])
def test_a_process_of_too_few_rounds_is_left_out(few: tuple[float | None, ...]) -> None:
    enough = tuple(map(float, range(1, 21)))
    assert len(processes([few, enough], [few, enough])) == 1
    assert len(processes([few, enough], None)) == 1
    assert len(apart([few, enough], [enough, enough])) == 1


def test_clocks_of_other_rounds_are_not_paired() -> None:
    rng = random.Random(1)
    a, b = ([rng.gauss(100, 5) for _ in range(20)] for _ in range(2))
    (found,) = apart([a], [b])
    assert found.log == pytest.approx(math.log(statistics.median(a) / statistics.median(b)), abs=1e-3)


# ---- Welch -----------------------------------------------------------------------------------------------------------

LOGS = st.lists(st.floats(-1, 1), min_size=5, max_size=12).filter(lambda logs: statistics.stdev(logs) > 1e-3)


@given(LOGS, LOGS)
def test_welchs_test_as_scipy_has_it(a: list[float], b: list[float]) -> None:
    stats = pytest.importorskip("scipy.stats")
    found, expected = between(side(*a), side(*b)), stats.ttest_ind(b, a, equal_var=False)
    assert found.log == pytest.approx(statistics.fmean(b) - statistics.fmean(a), abs=1e-12)
    assert found.freedom == pytest.approx(expected.df, abs=0.11)
    assert found.p == pytest.approx(expected.pvalue, rel=0.05, abs=1e-9)
    low, high = expected.confidence_interval(0.99)
    assert found.half_width() == pytest.approx((high - low) / 2, rel=0.02)


def test_welchs_test_of_a_textbook() -> None:
    a, b = side(1, 2, 3, 4, 5), side(2, 4, 6, 8, 10)
    found = between(a, b)
    assert found.log == 3
    assert found.error == pytest.approx(math.sqrt(2.5 / 5 + 10 / 5))
    assert found.freedom == 5.8  # 6.25 / (0.25 / 4 + 4 / 4) = 5.88, rounded down
    assert found.enough


@given(LOGS)
def test_a_difference_within_processes_is_a_paired_one(logs: list[float]) -> None:
    found = within(side(*logs))
    assert found.error == pytest.approx(statistics.stdev(logs) / math.sqrt(len(logs)))
    assert found.freedom == len(logs) - 1
    assert found.paired


# ---- too few processes -----------------------------------------------------------------------------------------------


def test_the_prior_stands_in_where_nothing_is_known() -> None:
    found = between(side(0.0), side(0.05))
    assert (found.spread, found.source, found.freedom) == (PRIOR, "assumed", math.inf)
    assert found.error == pytest.approx(PRIOR * math.sqrt(2))
    assert not found.enough
    assert between(side(0.0), side(0.05), PRIORS["kernel_us"]).error == pytest.approx(0.05 * math.sqrt(2))


@pytest.mark.parametrize("swapped", [False, True])
def test_the_spread_of_a_file_that_has_one_stands_in(swapped: bool) -> None:
    many, one = side(-0.02, -0.01, 0, 0.01, 0.02), side(0.2)
    found = between(one, many) if swapped else between(many, one)
    spread = statistics.stdev([-0.02, -0.01, 0, 0.01, 0.02])
    assert found.spread == pytest.approx(spread)
    assert found.error == pytest.approx(spread * math.sqrt(1 + 1 / 5))
    assert 4 <= found.freedom < 6


@given(st.integers(1, 4), st.integers(1, 4), st.floats(0, 0.1), st.floats(0, 0.1))
def test_no_side_of_few_processes_is_surer_than_the_prior_or_its_own_noise(
    a: int, b: int, noise: float, step: float
) -> None:
    few = [side(*(place * step for place in range(n)), noise=noise) for n in (a, b)]
    found = between(*few)
    assert found.spread >= max(PRIOR, noise) * (1 - 1e-9)
    own = [statistics.stdev(each.log for each in one) for one in few if len(one) > 1]
    assert found.spread >= math.sqrt(sum(max(PRIOR, each) ** 2 for each in own) / 2) * (1 - 1e-9)


def test_equal_processes_leave_no_doubt() -> None:
    equal = side(*[0.0] * 5)
    assert between(equal, equal).p == 1
    assert between(equal, side(*[0.1] * 5)).p == 0
    assert between(equal, equal).half_width() == 0


def test_the_interval_is_that_of_99_percent() -> None:
    found = between(side(0.0), side(0.05))
    assert found.half_width() == pytest.approx(2.5758 * found.error, rel=1e-4)
    assert student.two_sided(found.half_width() / found.error, found.freedom) == pytest.approx(0.01)


@pytest.mark.parametrize("times", [(5e-324, 1.0), (1.0, 5e-324), (1e15, 5e-324), (5e-324, 1e15)])
def test_times_that_a_file_may_hold_have_a_logarithm(times: tuple[float, float]) -> None:
    (found,) = processes([[times[0]] * 20], [[times[1]] * 20])
    assert math.isfinite(found.log)
