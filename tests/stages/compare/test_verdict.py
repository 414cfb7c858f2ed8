"""Words for differences, and Holm's correction over rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.stages.compare.difference import Process, between, within
from mlpfusion.stages.compare.verdict import holm, word


def found(log: float, spread: float = 0.001, n: int = 5):
    """A difference of `log` between `n` processes a side with about this spread."""
    offsets = [spread * (place - (n - 1) / 2) for place in range(n)]
    return between([Process(each, 0, 60) for each in offsets], [Process(log + each, 0, 60) for each in offsets])


@pytest.mark.parametrize(
    ("log", "spread", "expected"),
    [
        (0.03, 0.001, "slower"),
        (-0.03, 0.001, "faster"),
        (0.0, 0.001, "same"),
        (0.006, 0.0005, "same"),
        (0.0099, 0.001, "inconclusive"),  # certain, yet below the threshold, and not surely within it
        (0.03, 0.02, "inconclusive"),
        (0.0, 0.01, "inconclusive"),
    ],
)
def test_the_words(log: float, spread: float, expected: str) -> None:
    one = found(log, spread)
    assert word(one, one.p) == expected


def test_the_threshold_is_the_callers() -> None:
    one = found(0.03)
    assert word(one, one.p, 0.05) == "same"
    assert word(one, one.p, 0.025) == "slower"


def test_what_is_certain_alone_is_not_among_many_rows() -> None:
    one = found(0.03, 0.008)
    assert one.p < 0.01
    assert word(one, one.p) == "slower"
    assert word(one, holm([one.p] * 50)[0]) == "inconclusive"


@pytest.mark.parametrize(("log", "expected"), [(0.029, "inconclusive"), (0.031, "slower"), (-0.031, "faster")])
def test_one_process_decides_beyond_three_errors_of_the_assumed_spread(log: float, expected: str) -> None:
    one = between([Process(0.0, 0.001, 60)], [Process(log, 0.001, 60)])  # 3 · 0.7% · √2 = 2.97%
    assert word(one, one.p) == expected


@pytest.mark.parametrize("log", [0.0, 0.001, 0.009])
def test_one_process_never_says_same_at_the_usual_threshold(log: float) -> None:
    one = between([Process(0.0, 0.0, 60)], [Process(log, 0.0, 60)])
    assert word(one, one.p) == "inconclusive"


@pytest.mark.parametrize(("first", "second"), [(1, 1), (3, 3), (4, 4), (5, 4), (4, 5), (1, 5)])
@pytest.mark.parametrize("threshold", [0.01, 0.05, 0.5])
def test_same_needs_five_processes_a_side(first: int, second: int, threshold: float) -> None:
    sides = [[Process(1e-5 * place, 1e-5, 60) for place in range(n)] for n in (first, second)]
    one = between(*sides)
    assert word(one, one.p, threshold) == "inconclusive"
    pair = within(sides[0][:4])
    assert word(pair, pair.p, threshold) == "inconclusive"
    whole = between(sides[0] * 5, sides[1] * 5)
    assert word(whole, whole.p, threshold) == "same"


@given(st.lists(st.floats(0, 1), max_size=30))
def test_holms_correction(values: list[float]) -> None:
    adjusted = holm(values)
    for value, more in zip(values, adjusted, strict=True):
        assert value <= more <= max(value, min(1.0, len(values) * value))
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [adjusted[place] for place in order] == sorted(adjusted)
    assert not values or adjusted[order[0]] == min(1.0, len(values) * values[order[0]])


def test_holms_correction_of_a_textbook() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
