"""A control that may have changed by itself gives no row a verdict; a machine that changed is taken out of all."""

from __future__ import annotations

import pytest

from mlpfusion.records.comparison import ClockChange
from mlpfusion.stages.compare.control import STAYED, WENT, alone, judged, others


def change(before: float | None, after: float | None, clock: str = "graph_us", word: str | None = None) -> ClockChange:
    return ClockChange(clock=clock, baseline_us=before, candidate_us=after, word=word, needed=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("control", "rows", "expected"),
    [
        (1.10, (1.00, 1.00, 1.00), True),
        (0.90, (1.00, 1.01, 0.99), True),
        (1.10, (1.10, 1.00, 1.00), True),  # most stayed
        (1.10, (1.10, 1.00), True),  # nobody knows
        (1.10, (1.10, 1.11, 1.00), False),  # most went with it: the machine
        (1.10, (1.00,), False),  # one may have made up for the machine
        (1.10, (1.05, 1.05), False),  # neither
        (1.008, (1.00, 1.004, 1.00), True),  # whatever its size
        (1.10, (), False),
    ],
)
@pytest.mark.parametrize("us", [0.5, 2000.0])
def test_rows_that_stayed_say_that_it_may_be_the_control(
    control: float, rows: tuple[float, ...], expected: bool, us: float
) -> None:
    beside = [(change(us, us * factor), change(us, us * control, "event_us")) for factor in rows]
    found = alone((change(us, us * control), None), beside)
    assert found == ({"graph_us"} if expected else set())


@pytest.mark.parametrize("times", [(None, 1.0), (1.0, None), (0.0, 1.0)])
def test_times_that_are_not_there_say_nothing(times: tuple[float | None, float | None]) -> None:
    row = (change(1.0, 1.0),)
    assert alone((change(*times),), [row, row]) == frozenset()
    assert alone((change(1.0, 2.0),), [(change(*times),)] * 3) == frozenset()


def test_how_many_went_and_stayed_is_counted() -> None:
    beside = [(change(1.0, factor),) for factor in (1.1, 1.09, 1.05, 1.0, 0.9)]
    found = others(change(1.0, 1.1), beside)
    assert found == (2, 2, 5)
    assert (found.is_machine, found.is_control) == (False, True)


@pytest.mark.parametrize(
    ("word", "after", "expected"),
    [
        ("faster", 100.0, STAYED),
        ("faster", 99.5, STAYED),
        ("faster", 120.0, STAYED),
        ("faster", 90.0, None),
        ("slower", 100.0, STAYED),
        ("slower", 100.4, STAYED),
        ("slower", 110.0, None),
        ("same", 100.0, None),
        ("same", 103.0, WENT),
        ("inconclusive", 103.0, None),
        (None, 103.0, None),
    ],
)
def test_a_verdict_stays_where_the_row_s_own_time_bears_it_out(
    word: str | None, after: float, expected: str | None
) -> None:
    found = judged(change(100.0, after, word=word), frozenset({"graph_us"}), 0.01)
    assert (found.word, found.reason) == (("inconclusive", expected) if expected else (word, None))
    untouched = change(100.0, after, word=word)
    assert judged(untouched, frozenset({"event_us"}), 0.01) == untouched
