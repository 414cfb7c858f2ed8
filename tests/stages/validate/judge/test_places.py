"""Where wrong elements are, in words."""

from __future__ import annotations

import pytest
import torch

from mlpfusion.stages.validate.judge.places import by_width, within


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        (slice(None), slice(60, None), "all in the last 4 of 64 columns"),
        (slice(None), slice(0, 8), "all in the first 8 of 64 columns"),
        (slice(None), slice(8, 16), "all in columns 8 to 15 of 64"),
        (slice(6, None), slice(None), "all in the last 2 of 8 rows"),
        (slice(None), slice(None), ""),
        (slice(0, 0), slice(None), ""),
    ],
)
def test_the_part_that_is_wrong_is_named(rows: slice, columns: slice, words: str) -> None:
    wrong = torch.zeros(8, 64, dtype=torch.bool)
    wrong[rows, columns] = True
    assert within(wrong) == within(wrong.view(2, 4, 64)) == words


def test_scattered_elements_are_in_no_part() -> None:
    wrong = torch.zeros(8, 64, dtype=torch.bool)
    wrong[1, 3] = wrong[5, 40] = True
    assert within(wrong) == ""
    assert within(torch.ones((), dtype=torch.bool)) == within(torch.ones(3, dtype=torch.bool)) == ""


def test_a_fault_of_widths_is_told_from_one_of_all() -> None:
    said = by_width([12, 20, 12], [8, 16, 24, 6])
    assert said == "it depends on the width: wrong with 12, 20 columns (multiples of 4), right with 6, 8, 16, 24"
    assert by_width([12], [8]) == ""  # one width may be wrong for another reason
    assert by_width([7, 9], [7]) == ""
    assert by_width([], [8]) == ""
