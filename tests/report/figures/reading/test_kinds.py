"""Marks of a few kinds, and a legend of those that occur."""

from __future__ import annotations

from mlpfusion.report.figures.reading import kinds

BOTH = (kinds.Kind("a", "circle", "#000000"), kinds.Kind("b", kinds.TICK, "#d55e00", hollow=True))


def test_only_what_occurs_is_in_the_legend() -> None:
    assert kinds.present(BOTH, [{"kind": "b"}, {"kind": "b"}]) == BOTH[1:]


def test_a_hollow_mark_is_filled_with_the_page() -> None:
    made = kinds.layer(BOTH, {"field": "row", "scale": {"domain": ["x"]}}, {"field": "v"}, 84)
    assert made["encoding"]["fill"]["scale"] == {"domain": ["a", "b"], "range": ["#000000", "white"]}
    assert made["encoding"]["stroke"]["scale"]["range"] == ["#000000", "#d55e00"]
