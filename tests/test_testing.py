"""`assert_valid`: fails with the verdict unless the target is accepted, and passes on all that it is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.checks_made import checked

from mlpfusion import testing
from mlpfusion.errors import UsageError
from mlpfusion.records.validation import Verdict
from mlpfusion.report.validation import page
from mlpfusion.stages.validate import run


def verdict(word: str) -> Verdict:
    checks = (checked("tails", "fail"),) if word == "not valid" else (checked("kept", "reported", hazard=True),)
    return Verdict(
        target="a.py:f", kind="act_mul", activation="silu", word=word, headline="its headline", checks=checks
    )


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A validation that gives the words it is told, and what it was asked."""
    fake = SimpleNamespace(words=["valid"], asked=None)

    def validate(targets: list[str], **asked: Any) -> SimpleNamespace:
        fake.asked = {"targets": targets, **asked}
        return SimpleNamespace(verdicts=tuple(verdict(word) for word in fake.words))

    monkeypatch.setattr(run, "validate", validate)
    return fake


@pytest.mark.parametrize(
    ("word", "strict", "passes"),
    [
        ("valid", True, True),
        ("valid with hazards", False, True),
        ("valid with hazards", True, False),
        ("not valid", False, False),
        ("not decidable here", False, False),
    ],
)
def test_it_fails_unless_the_target_is_accepted(judged: SimpleNamespace, word: str, strict: bool, passes: bool) -> None:
    judged.words = [word]
    if passes:
        assert testing.assert_valid("a.py:f", strict=strict).word == word
        return
    with pytest.raises(AssertionError, match=rf"^a\.py:f \(act·mul, silu\)\n\n{word.upper()}: its headline"):
        testing.assert_valid("a.py:f", strict=strict)


def test_of_several_targets_those_that_are_not_are_said(judged: SimpleNamespace) -> None:
    judged.words = ["valid", "not valid", "not decidable here"]
    with pytest.raises(AssertionError) as caught:
        testing.assert_valid("folder")
    text = str(caught.value)
    assert "VALID: " not in text.replace("NOT VALID: ", "")
    assert "NOT VALID: its headline" in text
    assert "NOT DECIDABLE HERE: its headline" in text


def test_it_fails_with_the_text_of_the_command(judged: SimpleNamespace) -> None:
    judged.words = ["not valid"]
    with pytest.raises(AssertionError) as caught:
        testing.assert_valid("a.py:f")
    assert str(caught.value) == page(verdict("not valid"))


def test_what_is_asked_reaches_the_validation(judged: SimpleNamespace) -> None:
    testing.assert_valid("a.py:f", activation="silu", dtypes=["float32"], shapes=[(3,)], only=["tails"], seed=7)
    expected = {"activation": "silu", "dtypes": ["float32"], "shapes": [(3,)], "only": ["tails"], "seed": 7}
    assert judged.asked["targets"] == ["a.py:f"]
    assert {name: judged.asked[name] for name in expected} == expected
    assert judged.asked["against"] == ()


def test_a_function_is_asked_for_by_its_name(judged: SimpleNamespace) -> None:
    testing.assert_valid(verdict)
    (target,) = judged.asked["targets"]
    assert target == testing.name_of(verdict)
    assert target.endswith(":verdict")
    assert testing.name_of(testing.name_of) == "mlpfusion.testing:name_of"


def test_what_has_no_name_is_refused_before_any_work(judged: SimpleNamespace) -> None:
    with pytest.raises(UsageError, match="another process cannot find it"):
        testing.assert_valid(lambda gate, up: gate)
    assert judged.asked is None
