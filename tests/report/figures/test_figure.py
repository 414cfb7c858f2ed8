"""The record of a figure and the options of one."""

from __future__ import annotations

import pytest

from mlpfusion.report.figures.figure import Figure, Options


def test_it_cannot_be_changed() -> None:
    made = Figure(name="ratios", title="t", caption="t.", spec={}, columns=("a",), rows=((1,),))
    with pytest.raises(AttributeError):
        made.name = "other"  # type: ignore[misc]


def test_the_defaults_are_the_wide_figure_over_eager() -> None:
    assert Options() == Options(width=178, clock=None, baseline="eager", value="time")
