"""Counts and tallies in the words of findings."""

from __future__ import annotations

import pytest

from mlpfusion.records.trace import Share, Tally
from mlpfusion.trace.words import NAME, counted, numbers, shared, tallied


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "copy", "1 copy"),
        (2, "copy", "2 copies"),
        (0, "launch", "0 launches"),
        (1, "launch", "1 launch"),
        (3, "kernel", "3 kernels"),
        (2, "occupancy query", "2 occupancy queries"),
    ],
)
def test_a_noun_goes_with_its_count(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def tally(name: str, count: int = 2) -> Tally:
    return Tally(name=name, count=count, total_us=900.4, longest_us=500.0)


def test_a_tally_has_its_count_and_all_its_time() -> None:
    assert tallied([tally("cudaMalloc")]) == "2x cudaMalloc, 900 µs"
    assert shared([Share(name="aten::mm", us=12.2)]) == "aten::mm 12 µs"


@pytest.mark.parametrize(("names", "more"), [(4, ""), (5, " and 1 more"), (9, " and 5 more")])
def test_four_names_are_listed_and_the_rest_counted(names: int, more: str) -> None:
    found = tallied([tally(f"n{number}") for number in range(names)])
    assert found.count("µs") == 4
    assert found.endswith(f"n3, 900 µs{more}")


def test_a_long_name_is_cut() -> None:
    assert tallied([tally("x" * 200)]) == f"2x {'x' * NAME}, 900 µs"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1, 2, 5, 7, 8], "0–2, 5, 7–8"),
        ([8, 7, 5], "5, 7–8"),
        ([1, "a b.json", 0], "0–1, 'a b.json'"),
        (list(range(0, 40, 2)), "0, 2, 4, 6, 8, 10, 12, 14 and 12 more"),
    ],
)
def test_numbers_in_a_row_are_one_range(names: list[int | str], text: str) -> None:
    assert numbers(names) == text
