"""A record cannot be changed, and its fields are given by name."""

from __future__ import annotations

import pytest

from mlpfusion import records
from mlpfusion.records.base import Record


class Point(Record, frozen=True, kw_only=True):
    """As every record is declared."""

    x: int
    y: int = 0


def test_fields_are_given_by_name() -> None:
    assert (Point(x=1).x, Point(x=1).y) == (1, 0)
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="x"):
        Point()  # type: ignore[call-arg]


def test_it_cannot_be_changed_and_equal_ones_are_one_key() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Point(x=1).x = 2  # type: ignore[misc]
    assert {Point(x=1): "a"}[Point(x=1, y=0)] == "a"
    assert Point(x=1) != Point(x=2)


@pytest.mark.parametrize(
    "kind", [each for each in vars(records).values() if isinstance(each, type) and issubclass(each, Record)]
)
def test_every_public_record_is_one(kind: type[Record]) -> None:
    assert kind.__struct_config__.frozen
    with pytest.raises(TypeError, match="positional"):
        kind(1)  # type: ignore[call-arg]
