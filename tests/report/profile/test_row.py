"""What a row is called: its word with the reason, and its tokens where it ran others than the workload's."""

from __future__ import annotations

import msgspec
import pytest
from support.profiles_made import EAGER, HUB, LIGER, TRITON

from mlpfusion.report.profile.row import heading, status, tokens_of, verdict


@pytest.mark.parametrize(
    ("row", "word", "reason"),
    [
        (EAGER, "ok", None),
        (msgspec.structs.replace(EAGER, reason="alone"), "ok", "alone"),
        (LIGER, "unavailable", "no GPU | and no driver"),
        (HUB, "failed", "numerically wrong: 41 times eager's error"),
        (msgspec.structs.replace(HUB, reason=None), "failed", "no reason was recorded"),
        (TRITON, "emulated", "emulated: 8 tokens, no times"),
        (
            msgspec.structs.replace(TRITON, reason=None),
            "emulated",
            "computed by Triton's interpreter: right, but not timed",
        ),
        (msgspec.structs.replace(TRITON, status="failed", reason="wrong"), "failed", "wrong"),
    ],
)
def test_the_word_of_a_row_and_its_reason(row, word, reason):
    assert verdict(row) == (word, reason)
    assert status(row) == (f"{word}, 8 tokens" if row.emulated else word)


def test_an_emulated_row_says_its_tokens():
    assert (heading(EAGER), heading(TRITON)) == ("eager", "triton (8 tokens)")
    assert tokens_of(msgspec.structs.replace(TRITON, tokens=None)) == "an unknown number of tokens"
