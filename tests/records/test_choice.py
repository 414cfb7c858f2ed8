"""A choice refuses ranges and figures that no choice can have."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.choices_made import a_choice, part

from mlpfusion.errors import UsageError


@pytest.mark.parametrize(
    ("first", "last"),
    [(2, 1), (100, 99), (0, 1), (-1, None), (1, 0), (2**40, None)],
)
def test_a_range_that_cannot_be(first: int, last: int | None) -> None:
    with pytest.raises(UsageError):
        part("eager", first, last)


def test_a_range_may_be_one_number_and_may_have_no_end() -> None:
    assert (part("eager", 5, 5).last, part("eager", 5).last) == (5, None)


@pytest.mark.parametrize(
    ("one", "other", "at"),
    [((1, 8), (8, None), 8), ((1, None), (9, None), 9), ((1, 8), (4, 6), 4), ((9, None), (1, 8), 1)],
)
def test_ranges_of_one_mode_may_not_overlap(one: tuple[int, int], other: tuple[int, int | None], at: int) -> None:
    with pytest.raises(UsageError, match=f"^two ranges of tokens overlap at {at}$"):
        a_choice(part("eager", *one), part("eager", *other))


def test_ranges_of_two_modes_may() -> None:
    ranges = (part("eager", 1, 8), part("eager", 9), part("eager", 1, None, "training"))
    assert a_choice(*ranges).ranges == ranges
    between = (part("eager", 1, 8), part("eager", 1, None, "training"), part("eager", 4, 6))
    with pytest.raises(UsageError, match="overlap at 4"):
        a_choice(*between)


@pytest.mark.parametrize("field", ["tp", "rounds"])
@pytest.mark.parametrize("value", [0, -1, 10**9])
def test_a_figure_out_of_its_range_is_named(field: str, value: int) -> None:
    with pytest.raises(UsageError, match=field):
        replace(a_choice(), **{field: value})
