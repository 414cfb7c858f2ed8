"""Pages that are made to fit one comment, with what is left out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings

from mlpfusion.report.github_comment import LIMIT, cut, fitting

PAGE = "\n".join(["title", "WORD: why", "", *(f"- line {number}: {'x' * 90}" for number in range(400))])


@settings(max_examples=rings.examples(60), deadline=None)
@given(
    pages=st.lists(st.lists(st.integers(0, 5000), min_size=1, max_size=30), min_size=1, max_size=60),
    limit=st.integers(2_000, 20_000),
)
def test_no_pages_are_longer_than_the_limit(pages: list[list[int]], limit: int) -> None:
    made = ["\n".join("x" * length for length in lines) for lines in pages]
    text = fitting(made, limit)
    assert len(text) <= limit
    if len("\n\n\n".join(made)) > limit:
        assert "left out" in text
    else:
        assert text == "\n\n\n".join(made)


def test_long_pages_keep_their_heads_and_short_ones_stay_whole() -> None:
    short = "short\nVALID: every check passed"
    text = fitting([PAGE, short, PAGE])
    assert len(text) <= LIMIT
    assert text.count("title\nWORD: why") == 2
    assert short in text
    assert text.count("lines left out") == 2


def test_pages_without_room_are_counted() -> None:
    text = fitting([PAGE] * 1000)
    shown = text.count("title\n")
    assert f"and {1000 - shown} more, left out: a comment has 65,536 characters" in text


@pytest.mark.parametrize("length", [0, 79, 80, 81, 500, 100_000])
def test_a_cut_name_says_how_much_is_gone(length: int) -> None:
    name = "".join(chr(97 + index % 26) for index in range(length))
    short = cut(name, 80)
    assert len(short) <= 80
    if length <= 80:
        assert short == name
        return
    first, count, last = short.split(" … ")
    assert name.startswith(first)
    assert name.endswith(last)
    assert count == f"({length - len(first) - len(last)} characters left out)"
