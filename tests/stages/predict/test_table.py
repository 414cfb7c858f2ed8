"""Collections of a card's products become one table, each shape once."""

from __future__ import annotations

import numpy as np
import pytest

from mlpfusion.records.prediction import MeasuredProduct
from mlpfusion.stages.predict.table import ONE_COLLECTION, merged, own_rows

SHAPES = np.array([(1, 8, 8), (2, 8, 8), (4, 8, 8), (8, 8, 8), (16, 8, 8)])


def times(*values: float) -> np.ndarray:
    return np.array(values)


def test_whole_collections_are_joined_by_the_median_and_their_spread_is_kept() -> None:
    base = times(1.0, 2.0, 3.0, 4.0, 5.0)
    found = merged("a card", "a source", [(SHAPES, base), (SHAPES[::-1], base[::-1] * 1.1), (SHAPES, base * 4)])
    assert found.us == pytest.approx(base * 1.1)
    assert found.shapes.tolist() == SHAPES.tolist()
    assert found.spread == pytest.approx(np.log(4 / 1.1))  # the farthest fifth of them


def test_two_collections_meet_in_the_middle() -> None:
    found = merged("a card", "a source", [(SHAPES, times(1, 1, 1, 1, 1)), (SHAPES, times(4, 4, 4, 4, 4))])
    assert found.us == pytest.approx([2.0] * 5)
    assert found.spread == pytest.approx(np.log(2))


def test_a_part_of_the_shapes_bends_no_time_and_still_tells_how_far_collections_lie_apart() -> None:
    base = times(1.0, 2.0, 3.0, 4.0, 5.0)
    found = merged("a card", "a source", [(SHAPES, base), (SHAPES[2:3], times(3.3))])
    assert found.us == pytest.approx(base)
    assert found.spread == pytest.approx(np.log(1.1))


def test_one_collection_alone_says_nothing_of_the_spread() -> None:
    found = own_rows("a card", "mine.csv", [MeasuredProduct(m=1, n=2, k=3, us=4.0, source="mine.csv")])
    assert (found.shapes.tolist(), found.us.tolist(), found.spread) == ([[1, 2, 3]], [4.0], ONE_COLLECTION)
    assert len(found) == 1


def test_a_shape_that_a_user_timed_twice_is_there_once() -> None:
    twice = [MeasuredProduct(m=1, n=2, k=3, us=us, source="mine.csv") for us in (2.0, 8.0)]
    assert own_rows("a card", "mine.csv", twice).us == pytest.approx([4.0])
