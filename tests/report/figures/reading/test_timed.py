"""Rows with a time by one clock, and why others have none."""

from __future__ import annotations

import pytest
from support.paths import RESULTS
from support.profiles_made import COMPILE, EAGER, HUB, LIGER, TRITON, profile

from mlpfusion.report.figures.reading import shapes, timed
from mlpfusion.storage.gathered import Gathered, gather

EVERY = shapes.of([Gathered("f.json", profile(EAGER, COMPILE, LIGER, HUB, TRITON), "")])


@pytest.mark.parametrize(
    ("wanted", "clock", "names"),
    [
        (None, "event_us", ["eager", "compile"]),
        ("kernel_us", "kernel_us", ["eager"]),
        ("graph_us", "graph_us", []),
    ],
)
def test_a_clock_that_is_not_named_is_the_one_of_most_rows(wanted, clock: str, names: list[str]) -> None:
    found, rows = timed.pick(EVERY, wanted)
    assert (found, [each.row.backend for each in rows]) == (clock, names)


def test_each_that_is_absent_is_named_once_with_its_reason() -> None:
    assert timed.absent([*EVERY, *EVERY], "graph_us")[:3] == (
        "eager: no graph_us: capture is off",
        "compile: no graph_us: capture is off",
        "liger: unavailable: no GPU | and no driver",
    )


def test_a_recorded_file_has_all_of_them() -> None:
    every = shapes.of(gather([str(RESULTS / "h200-profile.json")]))
    assert timed.absent(every, "event_us") == ()
    assert len(timed.pick(every, None)[1]) == 11
