"""A test of many cases tries all of them, and says of each that fails which one it is and why."""

from __future__ import annotations

import pytest
from support.one_by_one import one_by_one


def test_every_case_is_tried_and_every_failure_told() -> None:
    tried = []

    @one_by_one([(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    def test_it(number: int, letter: str) -> None:
        tried.append((number, letter))
        assert number % 2, "even"
        if number == 3:
            raise ValueError(letter)

    with pytest.raises(AssertionError) as caught:
        test_it()
    assert tried == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    first, *told = str(caught.value).splitlines()
    assert first == "3 of 4 cases fail:"
    cases = [line for line in told if ": " in line]
    assert [line.split(": ")[0] for line in cases] == ["2, 'b'", "3, 'c'", "4, 'd'"]
    assert "ValueError: c" in cases[1]
    assert isinstance(caught.value.__cause__, AssertionError)
    assert "even" in str(caught.value.__cause__)


def test_values_are_single_arguments_and_none_at_all_is_a_fault() -> None:
    tried = []
    one_by_one([["a"], "b"])(tried.append)()
    assert tried == [["a"], "b"]
    with pytest.raises(AssertionError, match="no cases"):
        one_by_one([])(tried.append)()
