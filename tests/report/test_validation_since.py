"""What changed since an earlier validation, as text and Markdown."""

from __future__ import annotations

import msgspec
import pytest
from support.checks_made import checked, validation

from mlpfusion.records.validation import Changed, Checked, Since, Verdict
from mlpfusion.report.validation import render
from mlpfusion.report.validation_since import page

FAIL = msgspec.structs.replace(checked("function", "fail"), dtype="float32")


def changed(then: str, now: str, **faults: tuple[Checked, ...]) -> Changed:
    none: dict[str, tuple[Checked, ...]] = {"new": (), "mended": (), "not_judged": ()}
    return Changed(target="t.py:f", words=(then, now), **(none | faults))  # type: ignore[arg-type]


def since(*targets: Changed, made_with: tuple[str, ...] = ()) -> Since:
    return Since(created="2026-01-01", targets=targets, made_with=made_with)


def test_it_is_said_by_target_with_what_is_the_same_counted() -> None:
    found = since(changed("valid", "not valid", new=(FAIL,)), changed("not valid", "not valid"))
    assert page(found).splitlines() == [
        "SINCE 2026-01-01",
        "t.py:f: it was valid, and is not valid",
        "t.py:f: new: function [float32]: of function",
        "1 of 2 targets have the faults that they had, and no others",
    ]


@pytest.mark.parametrize(("field", "word"), [("new", "new"), ("mended", "mended"), ("not_judged", "not judged now")])
def test_each_kind_of_change_has_its_word(field: str, word: str) -> None:
    said = page(since(changed("not valid", "not valid", **{field: (FAIL,)})))
    assert said.splitlines()[1:] == [f"t.py:f: {word}: function [float32]: of function"]


def test_other_conditions_are_told_and_nothing_is_never_silent() -> None:
    assert "other conditions: torch was 1, is 2" in page(since(made_with=("torch was 1, is 2",)))
    assert page(since()).splitlines()[1] == "0 of 0 targets have the faults that they had, and no others"


def test_it_comes_before_the_verdicts() -> None:
    made = Verdict(target="t.py:f", kind="act_mul", activation="silu", word="valid", headline="")
    shown = render(validation(made), "github", since=since(changed("valid", "valid")))
    assert shown.startswith("**Since 2026-01-01**\n\n- 1 of 1 targets")
    assert "**`t.py:f`**" in shown
