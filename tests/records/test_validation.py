"""Which verdict accepts a target, and when a self-test has passed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.checks_made import checked, self_test

from mlpfusion.records.validation import Control, Judged, Verdict

FOUND = Verdict(
    target="a.py:f",
    kind="act_mul",
    activation="silu",
    word="valid",
    headline="",
    checks=(
        checked("runs", "pass"),
        checked("tails", "fail"),
        checked("saved-kept", "reported", hazard=True),
        checked("store", "fail"),
    ),
)


@pytest.mark.parametrize(
    ("word", "strict", "accepted"),
    [
        ("valid", False, True),
        ("valid", True, True),
        ("valid with hazards", False, True),
        ("valid with hazards", True, False),
        ("not valid", False, False),
        ("not decidable here", False, False),
    ],
)
def test_only_what_is_valid_is_accepted_and_hazards_unless_strict(word: str, strict: bool, accepted: bool) -> None:
    assert replace(FOUND, word=word).is_accepted(strict=strict) is accepted


def test_faults_and_hazards_stay_in_order() -> None:
    assert [check.name for check in FOUND.failed] == ["tails", "store"]
    assert [check.name for check in FOUND.hazards] == ["saved-kept"]


CONTROL = Control(name="a", target="a.py:f", why="a fault")
RIGHT, WRONG = Judged(control=CONTROL, verdict=FOUND), Judged(control=CONTROL, verdict=FOUND, wrong="is valid")
SKIPPED = Judged(control=CONTROL, skipped="needs a GPU")


@pytest.mark.parametrize(
    ("judged", "passed"),
    [
        ((RIGHT,), True),
        ((RIGHT, SKIPPED), True),
        ((RIGHT, WRONG), False),
        ((SKIPPED,), False),  # where nothing ran nothing is known
        ((), False),
    ],
)
def test_a_self_test_passes_where_all_that_ran_was_right(judged: tuple[Judged, ...], passed: bool) -> None:
    assert self_test(*judged).passed is passed
