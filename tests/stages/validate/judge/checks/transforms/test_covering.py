"""Rows of a covering array have every pair that may meet, and none that may not."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings

from mlpfusion.stages.validate.judge.checks.transforms import covering


def pairs(row: tuple[int, ...]) -> set[tuple[covering.Level, covering.Level]]:
    first, second = itertools.tee(enumerate(row))
    return {(a, b) for a, b in itertools.product(first, second) if a[0] < b[0]}


@settings(max_examples=rings.examples(60))
@given(st.lists(st.integers(1, 6), min_size=2, max_size=6), st.integers(0, 999))
def test_every_pair_of_levels_is_in_a_row(sizes: list[int], seed: int) -> None:
    found = covering.rows(sizes, Random(seed))
    assert all(0 <= at < size for row in found for at, size in zip(row, sizes, strict=True))
    every = set().union(*(pairs(row) for row in itertools.product(*map(range, sizes))))
    assert set().union(*map(pairs, found)) == every
    assert len(found) < 2.5 * max(a * b for a, b in itertools.combinations(sizes, 2)) + 1


@settings(max_examples=rings.examples(60))
@given(st.integers(2, 5), st.integers(2, 5), st.integers(1, 4), st.integers(0, 999))
def test_levels_that_may_not_meet_are_in_no_row_and_all_others_are(a: int, b: int, c: int, seed: int) -> None:
    def may_meet(first: covering.Level, second: covering.Level) -> bool:
        """The first level of each side meets all."""
        return 0 in (first[1], second[1]) or (first[1] + second[1] + first[0]) % 3 != 0

    found = covering.rows([a, b, c], Random(seed), may_meet)
    met = set().union(*map(pairs, found))
    assert all(may_meet(*pair) for pair in met)
    every = set().union(*(pairs(row) for row in itertools.product(range(a), range(b), range(c))))
    assert met == {pair for pair in every if may_meet(*pair)}


def test_rows_are_few_and_another_seed_has_others() -> None:
    sizes = [5, 3, 8, 4, 8, 7, 5, 5]
    found = covering.rows(sizes, Random(0))
    assert 64 <= len(found) < 100
    assert found != covering.rows(sizes, Random(1))
    assert found == covering.rows(sizes, Random(0))


@pytest.mark.parametrize("sizes", [[1, 1], [7, 1]])
def test_a_side_of_one_level_is_in_every_row(sizes: list[int]) -> None:
    assert sorted(covering.rows(sizes, Random(0))) == [(at, 0) for at in range(sizes[0])]
