"""Ends and ticks of axes, and shaded groups of rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.report.figures.drawing import axes


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0.97, 1.6, (1.0, 1.2, 1.4, 1.6)),
        (0.7, 1.9, (0.8, 1.0, 1.2, 1.4, 1.6, 1.8)),
        (1, 50, (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)),
        (0.5, 20_000, (1.0, 10.0, 100.0, 1000.0, 10_000.0)),
    ],
)
def test_ticks_are_round(low: float, high: float, wanted: tuple[float, ...]) -> None:
    assert axes.log_ticks(low, high, 6) == pytest.approx(wanted)


@given(st.floats(1e-6, 1e6), st.floats(1, 1e12))
def test_a_domain_holds_its_ends_and_has_ticks_in_it(low: float, times: float) -> None:
    made = axes.log(low, low * times)
    first, last = made["scale"]["domain"]
    assert first < low <= low * times < last
    ticks = made["axis"]["values"]
    assert 1 <= len(ticks) <= 15
    assert all(first * (1 - 1e-6) <= tick <= last * (1 + 1e-6) for tick in ticks)


def test_every_other_group_is_shaded() -> None:
    channel, bands = axes.rows(["a", "b", "c"], [0, 1, 2], "ratios", 178)
    assert channel["scale"]["domain"] == ["a", "b", "c"]
    assert bands[0]["data"]["values"] == [{"row": "b"}]
    assert axes.rows(["a", "b"], [0, 0], "ratios", 178)[1] == []


def test_labels_have_a_limit_only_where_one_is_beyond_it() -> None:
    for label, limited in (("short", False), ("w" * 200, True)):
        channel, _ = axes.rows([label], [0], "ratios", 84)
        assert ("labelLimit" in channel["axis"]) != limited


def test_a_line_is_drawn_once_however_many_rows_there_are() -> None:
    assert len(axes.line(1)["data"]["values"]) == 1
