"""One clock of two rows: what is absent, what cannot decide, and what the record says."""

from __future__ import annotations

import pytest

from mlpfusion.stages.compare import times
from mlpfusion.stages.compare.subjects import Timed

STEADY = tuple(100.0 + place % 3 for place in range(60))
TIMED = Timed(101.0, (STEADY,) * 5)
CONTROL = Timed(101.0, (STEADY,) * 5)
NONE = Timed(101.0, ())


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ((None, CONTROL), (TIMED, CONTROL), "the baseline has none"),
        ((TIMED, CONTROL), (None, CONTROL), "the candidate has none"),
        ((NONE, CONTROL), (TIMED, CONTROL), "the baseline keeps no samples"),
        ((TIMED, CONTROL), (TIMED, None), "the candidate's control has none"),
        ((TIMED, NONE), (TIMED, CONTROL), "the baseline's control has none"),
    ],
)
def test_what_is_absent_is_said(a: tuple[Timed | None, ...], b: tuple[Timed | None, ...], reason: str) -> None:
    found = times.outcome("graph_us", times.Side(*a), times.Side(*b), with_control=True, together=False)
    assert (found.found, found.reason, found.decides) == (None, reason, False)
    change = times.change(found, 1.0, 1, 0.01)
    assert (change.word, change.ratio, change.reason) == (None, None, reason)


def test_rounds_that_cannot_be_paired_decide_nothing() -> None:
    unpaired = TIMED._replace(paired=False, rounds=tuple(each[:-1] for each in TIMED.rounds))
    found = times.outcome(
        "graph_us", times.Side(TIMED, CONTROL), times.Side(unpaired, CONTROL), with_control=True, together=False
    )
    assert found.found is not None
    assert found.reason == "rounds were dropped in the candidate and cannot be paired"
    assert times.change(found, 0.0, 1, 0.01).word is None


def test_no_control_is_needed_within_the_same_processes() -> None:
    found = times.outcome(
        "graph_us", times.Side(TIMED, None), times.Side(TIMED, None), with_control=True, together=True
    )
    assert found.decides
    assert found.found.paired


def test_times_of_any_size_make_a_ratio() -> None:
    wild = tuple(1e15 if place % 2 else 1e-300 for place in range(60))
    found = times.outcome("graph_us", times.Side(Timed(1.0, (wild,)), CONTROL), times.Side(TIMED, CONTROL),
                          with_control=False, together=False)  # fmt: skip
    change = times.change(found, 1.0, 1, 0.01)
    assert 0 < change.low <= change.ratio <= change.high <= 1.001e30


def test_the_controls_own_change_has_no_verdict() -> None:
    slow = Timed(202.0, tuple(tuple(2 * time for time in each) for each in CONTROL.rounds))
    change = times.own_change("graph_us", CONTROL, slow)
    assert change.ratio == pytest.approx(0.5)
    assert change.word is None
    assert times.own_change("graph_us", CONTROL, None) is None
