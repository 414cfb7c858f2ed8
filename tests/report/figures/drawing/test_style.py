"""The look of figures: no two backends alike, type that prints, widths in mm."""

from __future__ import annotations

from importlib import metadata

import pytest

from mlpfusion.errors import UsageError
from mlpfusion.report.figures.drawing import style

NAMES = [point.name for point in metadata.entry_points(group="mlpfusion.backends")]


def test_every_backend_of_ours_has_its_own_look() -> None:
    assert set(NAMES) <= set(style._LOOKS)
    for part in zip(*style._LOOKS.values(), strict=True):
        assert len(set(part)) == len(style._LOOKS)


def test_a_look_does_not_depend_on_the_others() -> None:
    assert style.looks(["x", "fused"])["fused"] == style.looks(["fused", "eager", "y"])["fused"]


@pytest.mark.parametrize("count", [1, 12, 13, 40, style.MOST_BACKENDS])
def test_unknown_backends_are_told_apart(count: int) -> None:
    found = style.looks([*(f"mine-{number}" for number in range(count - 1)), "eager"])
    assert len({(look.colour, look.shape, look.dash) for look in found.values()}) == count
    assert len({(look.shape, look.dash) for look in found.values()}) == count  # in grey


def test_more_than_can_be_told_apart_are_refused() -> None:
    with pytest.raises(UsageError, match="at most 100 backends apart; the files have 101"):
        style.looks([str(number) for number in range(101)])


@pytest.mark.parametrize("width", [84, 178])
def test_no_type_is_below_7_points(width: int) -> None:
    assert style.type_size(width) * 0.75 >= 7
    assert style.pixels(width) == pytest.approx(width / 25.4 * 96, abs=0.01)


def test_a_legend_has_the_columns_that_fit() -> None:
    assert style.legend(["eager"], 178)["columns"] > style.legend(["compile-max-autotune"], 178)["columns"]
    assert style.legend(["compile-max-autotune"], 84)["columns"] == 2
    assert style.legend(["W" * 400], 84)["columns"] == 1
