"""Verdicts as text, Markdown, CSV and JSON."""

from __future__ import annotations

import msgspec
from support.checks_made import checked

from mlpfusion.records.validation import Verdict
from mlpfusion.report.validation import page as verdict_page


def test_a_dtype_in_which_nothing_ran_has_no_word_in_the_table() -> None:
    one = msgspec.structs.replace(checked("saved-kept", "pass"), dtype="float32")
    page = verdict_page(
        Verdict(target="t", kind="act_mul", activation="silu", word="valid", headline="", checks=(one,))
    )
    line = next(line for line in page.splitlines() if "saved-kept" in line)
    assert line.split()[1:4] == ["–", "–", "pass"]
