"""A control that changed alone gives no row a verdict; a machine that changed is taken out of all."""

from __future__ import annotations

import pytest

from mlpfusion.records.comparison import ClockChange
from mlpfusion.stages.compare.control import REASON, alone, judged


def change(before: float | None, after: float | None, clock: str = "graph_us", word: str | None = None) -> ClockChange:
    return ClockChange(clock=clock, baseline_us=before, candidate_us=after, word=word, needed=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("control", "rows", "expected"),
    [
        (1.10, (1.00, 1.00, 1.00), True),
        (0.90, (1.00, 1.01, 0.99), True),
        (1.10, (1.10, 1.00, 1.00), True),  # most stayed
        (1.10, (1.10, 1.11, 1.00), False),  # most moved with it: the machine
        (1.10, (1.10, 1.00), False),
        (1.10, (1.00,), False),  # of one row nobody knows
        (1.005, (1.00, 1.00), False),  # within the threshold
        (1.10, (), False),
    ],
)
@pytest.mark.parametrize("us", [0.5, 2000.0])
def test_most_rows_that_stayed_say_that_it_was_the_control(
    control: float, rows: tuple[float, ...], expected: bool, us: float
) -> None:
    others = [(change(us, us * factor), change(us, us * control, "event_us")) for factor in rows]
    found = alone((change(us, us * control), None), others, 0.01)
    assert found == ({"graph_us"} if expected else set())


@pytest.mark.parametrize("times", [(None, 1.0), (1.0, None), (0.0, 1.0)])
def test_times_that_are_not_there_say_nothing(times: tuple[float | None, float | None]) -> None:
    row = (change(1.0, 1.0),)
    assert alone((change(*times),), [row, row], 0.01) == frozenset()
    assert alone((change(1.0, 2.0),), [(change(*times),)] * 3, 0.01) == frozenset()


@pytest.mark.parametrize(
    ("word", "after", "expected"),
    [
        ("faster", 100.0, "inconclusive"),
        ("faster", 99.5, "inconclusive"),
        ("faster", 120.0, "inconclusive"),
        ("faster", 90.0, "faster"),
        ("slower", 100.0, "inconclusive"),
        ("slower", 110.0, "slower"),
        ("same", 100.0, "same"),
    ],
)
def test_a_verdict_stays_where_the_row_s_own_time_bears_it_out(word: str, after: float, expected: str) -> None:
    found = judged(change(100.0, after, word=word), frozenset({"graph_us"}), 0.01)
    assert found.word == expected
    assert (found.reason == REASON) == (word != expected)
    untouched = change(100.0, after, word=word)
    assert judged(untouched, frozenset({"event_us"}), 0.01) == untouched
