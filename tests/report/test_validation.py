"""Verdicts as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec
import pytest
from support.checks_made import checked, validation

from mlpfusion.records.validation import Checked, Launched, Peer, Verdict
from mlpfusion.report.validation import page as verdict_page
from mlpfusion.report.validation import render


def found(name: str, status: str = "pass", **changes: Any) -> Checked:
    return msgspec.structs.replace(checked(name, status), **{"dtype": "float32", **changes})


def verdict(*checks: Checked, **changes: Any) -> Verdict:
    made = Verdict(target="t.py:f", kind="act_mul", activation="silu", word="not valid", headline="why", checks=checks)
    return msgspec.structs.replace(made, **changes)


def test_a_dtype_in_which_nothing_ran_has_no_word_in_the_table() -> None:
    page = verdict_page(verdict(found("saved-kept")), everything=True)
    line = next(line for line in page.splitlines() if "saved-kept" in line)
    assert line.split()[1:4] == ["–", "–", "pass"]


CAUSE = found("function", "fail", repro="mlpfusion validate t.py:f --only function", shape=(7, 127))
AFTER = [found(name, "fail", follows="function", repro=f"again {name}") for name in ("elementwise", "backward")]


def test_what_follows_is_one_line_under_its_cause() -> None:
    page = verdict_page(verdict(found("runs"), CAUSE, *AFTER, found("aliased", "fail", repro="alone")))
    assert "2 checks follow from this: elementwise [float32], backward [float32]" in page
    assert "function [float32], fail at shape 7x127: of function\n    again: mlpfusion validate t.py:f" in page
    assert "aliased [float32], fail: of aliased" in page
    assert "again elementwise" not in page
    assert "1 check passed; --all shows each" in page
    assert "looks at" not in page


def test_with_everything_there_is_the_table_and_what_follows_in_full() -> None:
    page = verdict_page(verdict(found("runs"), CAUSE, *AFTER), everything=True)
    assert "looks at" in page
    assert "again elementwise" in page
    assert "follow from this" not in page
    assert "--all" not in page


def test_a_cause_in_two_dtypes_has_what_follows_once() -> None:
    twice = [CAUSE, msgspec.structs.replace(CAUSE, dtype="bfloat16")]
    assert verdict_page(verdict(*twice, *AFTER)).count("from this:") == 1


def test_shapes_that_a_quick_validation_left_out_are_counted_and_named_by_all() -> None:
    shapes = tuple(f"{n}x8" for n in range(2, 60))
    quick = verdict(found("runs"), left_out=("check compile", *shapes, "most ranges of gates"))
    assert "left out by --quick: check compile, most ranges of gates, 58 shapes (--all names them)" in verdict_page(
        quick
    )
    assert f"left out by --quick: check compile, {', '.join(shapes)}, most" in verdict_page(quick, everything=True)
    few = verdict(found("runs"), left_out=("1031", "8x264"))
    assert "left out by --quick: 1031, 8x264\n" in verdict_page(few)


@pytest.mark.parametrize("sizes", [{"M": 65537, "N": 131072}, {"M": 3, "N": 5}])
def test_up_to_which_sizes_it_was_judged_is_of_the_checks_that_passed(sizes: dict[str, int]) -> None:
    checks = [
        found("runs", dtype="bfloat16", largest={"M": 1, "N": 5}),
        found("runs", "reported", dtype="float32", largest={"M": 1, "N": 1}),
        found("written", dtype="bfloat16", largest={"M": sizes["M"], "N": 1}),
        found("layouts", dtype="bfloat16", largest={"M": 1, "N": sizes["N"]}),
        found("elementwise", "fail", dtype="bfloat16", largest={"M": 2**27, "N": 2**27}),
    ]
    line = f"judged for M ≤ {sizes['M']:,}, N ≤ {sizes['N']:,}, bf16; refused: fp32"
    assert line in verdict_page(verdict(*checks)).splitlines()


def test_the_sizes_of_an_mlp_are_named_and_nothing_is_said_where_nothing_passed() -> None:
    largest = {"M": 160, "hidden_size": 320, "intermediate_size": 4096}
    page = verdict_page(verdict(found("runs", largest=largest)))
    assert "judged for M ≤ 160, hidden ≤ 320, intermediate ≤ 4,096, fp32" in page
    assert "judged for" not in verdict_page(verdict(found("runs", "reported", largest=largest)))


def test_what_a_passed_check_was_refused_is_told() -> None:
    page = verdict_page(verdict(found("layouts", refused=("8x256 transposed", "2x4x256 permuted")), found("written")))
    assert "layouts [float32], pass: of layouts\n    refused: 8x256 transposed, 2x4x256 permuted" in page
    assert "written [float32]" not in page
    said = found("mismatched", refused=("4x256",), sentence="a row of up is refused: ValueError")
    assert verdict_page(verdict(said)).count("refused") == 1
    many = verdict_page(verdict(found("elementwise", refused=tuple(f"{n}x3" for n in range(40)))))
    assert "11x3 and 28 more" in many


def test_markdown_fits_a_comment_whatever_the_names_are() -> None:
    kernels = tuple(Launched(name=f"k{number}_{'y' * 3000}") for number in range(300))
    failures = [found(f"check-{number}", "fail", repro="z" * 3000) for number in range(200)]
    one = verdict(*failures, target="t" * 5000 + ".py:f", peers=(Peer(name="p", kernels=kernels),))
    text = render(validation(*[one] * 9), "github")
    assert len(text) <= 65_536
    assert text.count("NOT VALID: why") == 9
    assert "characters left out" in text
    assert "lines left out" in text
    assert "and 288 more" in render(validation(one), "text")


def test_csv_says_what_follows() -> None:
    rows = list(csv.DictReader(io.StringIO(render(validation(verdict(CAUSE, *AFTER)), "csv"))))
    assert [row["follows"] for row in rows] == ["", "function", "function"]
