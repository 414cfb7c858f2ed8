"""Cells of the page's tables."""

from __future__ import annotations

import pytest

from mlpfusion.report.page.cells import Cell, Head, Table, alignment, cell, line
from mlpfusion.units import ABSENT


@pytest.mark.parametrize("text", [None, ""])
def test_what_is_absent_has_a_mark(text: str | None) -> None:
    assert cell(text).text == ABSENT


def test_a_line_has_cells_and_keys() -> None:
    made = line("a", Cell("1", 1), None, tokens="8")
    assert [each.text for each in made.cells] == ["a", "1", ABSENT]
    assert made.keys == {"tokens": "8"}


def test_columns_of_numbers_are_aligned_by_a_class_of_their_table() -> None:
    table = Table("t", "", (Head("a"), Head("b", number=True), Head("c", number=True)), ())
    assert table.aligned == "n2 n3"
    assert all(f".{each} td:nth-child({each[1:]})" in alignment(3) for each in table.aligned.split())
