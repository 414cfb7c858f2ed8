"""Cells of the page's tables."""

from __future__ import annotations

import pytest

from mlpfusion.report.page.cells import WHOLE, Cell, Head, Table, cell, line, styles
from mlpfusion.units import ABSENT


@pytest.mark.parametrize("text", [None, ""])
def test_what_is_absent_has_a_mark(text: str | None) -> None:
    assert cell(text).text == ABSENT


def test_a_line_has_cells_and_keys() -> None:
    made = line("a", Cell("1", 1), None, tokens="8")
    assert [each.text for each in made.cells] == ["a", "1", ABSENT]
    assert made.keys == {"tokens": "8"}


def test_columns_have_the_classes_of_their_numbers_and_short_words() -> None:
    heads = (Head("a"), Head("b", number=True), Head("c"))
    table = Table("t", "", heads, (line("gate_up_gemm and more", "1", "x" * WHOLE), line("a", "2", "x" * (WHOLE + 1))))
    assert table.classes == "w1 n2"
    assert all(f".{each} td:nth-child({each[1:]})" in styles(3) for each in table.classes.split())
