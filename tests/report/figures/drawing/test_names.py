"""Names as figures show them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.report.figures.drawing import names


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("eager", "eager"),
        ("a\nb\tc", "a b c"),
        ("<img onerror=alert(1)>", "<img onerror=alert(1)>"),
        ("\u202eegrel", "�egrel"),
        ("a\0b\x1b[31m", "a�b�[31m"),
        ("", "(no name)"),
        (" \n ", "(no name)"),
        ("x" * 10_000, f"{'x' * 20}…{'x' * 19}"),
        ("שלום", "שלום"),
    ],
)
def test_a_name_is_one_short_line(name: str, wanted: str) -> None:
    assert names.shown(name, 178) == wanted


@given(st.lists(st.text(), max_size=12), st.sampled_from([84, 178]))
def test_no_two_names_look_alike(given_names: list[str], width: int) -> None:
    found = names.distinct(given_names, width)
    assert list(found) == list(dict.fromkeys(given_names))
    assert len(set(found.values())) == len(found)
    assert all(text.isprintable() and len(text) <= names.LONGEST[width] + 6 for text in found.values())


def test_long_names_that_differ_in_the_middle_are_numbered() -> None:
    found = names.distinct([f"{'a' * 50}{number}{'b' * 50}" for number in range(3)], 84)
    assert [text[-4:] for text in found.values()] == ["bbbb", " (2)", " (3)"]
