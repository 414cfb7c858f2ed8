"""A self-test as text, Markdown, CSV and JSON: what each control should get, and what it got."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest
from support.checks_made import self_test

from mlpfusion.errors import UsageError
from mlpfusion.records.validation import Control, Judged, SelfTest, Verdict
from mlpfusion.report.self_test import HEADS, render, summary


def control(name: str, **changes: object) -> Control:
    return Control(name=name, target=f"{name}.py:f", why=f"why {name}", **changes)


def verdict(name: str, word: str) -> Verdict:
    return Verdict(
        target=f"{name}.py:f", kind="act_mul", activation="silu", word=word, headline=f"of {name}", seconds=2
    )


GOOD = Judged(control=control("good", hazards=("saved-kept",)), verdict=verdict("good", "valid with hazards"))
BAD = Judged(control=control("bad", rejected_by="store", seen_in=("float16",)), verdict=verdict("bad", "not valid"))
LET_THROUGH = Judged(
    control=control("let through", rejected_by="tails"), verdict=verdict("let through", "valid"), wrong="is valid"
)
ABSENT = Judged(control=control("absent", needs="liger_kernel"), skipped="liger_kernel is not installed")


def rows(*judged: Judged) -> dict[str, dict[str, str]]:
    return {row["control"]: row for row in csv.DictReader(io.StringIO(render(self_test(*judged), "csv")))}


def test_the_summary_counts_bad_good_and_what_did_not_run() -> None:
    assert summary(self_test(GOOD, BAD, LET_THROUGH, ABSENT)) == (
        "1 of 2 bad controls rejected by the check meant for them, 1 of 1 good ones accepted, 1 not run here, in 61 s "
        "on NVIDIA H100 80GB HBM3 (seed 7)"
    )


def test_each_control_says_what_it_should_get_and_what_it_got() -> None:
    found = rows(GOOD, BAD, LET_THROUGH, ABSENT)
    assert {name: (row["should be"], row["is"]) for name, row in found.items()} == {
        "good": ("accepted (hazards: saved-kept)", "valid with hazards"),
        "bad": ("rejected by store", "not valid"),
        "let through": ("rejected by tails", "WRONG: valid"),
        "absent": ("accepted", "not run: liger_kernel is not installed"),
    }
    assert (found["bad"]["seen in"], found["good"]["seen in"], found["absent"]["s"]) == ("float16", "–", "–")


@pytest.mark.parametrize("fmt", ["text", "github"])
def test_what_is_wrong_is_said_once_more_below_the_table_and_only_then(fmt: str) -> None:
    assert render(self_test(GOOD, LET_THROUGH), fmt).endswith("\n\nWRONG\nlet through is valid\n")
    assert "WRONG" not in render(self_test(GOOD, BAD, ABSENT), fmt)
    assert all(head in render(self_test(GOOD), fmt) for head in HEADS)


def test_json_is_the_file_itself() -> None:
    found = self_test(GOOD, BAD, ABSENT)
    assert msgspec.json.decode(render(found, "json"), type=SelfTest) == found
    with pytest.raises(UsageError, match="unknown format 'pdf'"):
        render(found, "pdf")
