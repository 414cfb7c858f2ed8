"""Predictions on the page: apart from what was measured, marked, and never ranked."""

from __future__ import annotations

import pytest
from support import profiles_made as made
from support import races_made
from support.reported import Read, rendered, source

from mlpfusion.report.page import predicted


def test_a_prediction_is_a_table_of_its_own_with_the_mark_in_every_row() -> None:
    (table,) = predicted.tables([source(made.profile()), source(races_made.foresight(16), "z1.json")])
    heads = [each.text for each in table.heads]
    rows = [dict(zip(heads, (each.text for each in line.cells), strict=True)) for line in table.lines]
    assert [row["backend"] for row in rows] == ["fused (predicted)", "eager (predicted)", "odd"]
    assert [row["predicted µs [80%]"] for row in rows] == ["100 [90–110]", "150 [140–165]", "–"]
    assert (table.lines[0].keys["backend"], table.lines[0].keys["tokens"]) == ("fused", "16")
    assert "NVIDIA Z1" in table.caption


def test_files_without_a_prediction_have_none() -> None:
    assert predicted.tables([source(made.profile())]) == []
    assert list(predicted.sentences([source(made.profile())])) == []


@pytest.mark.parametrize("measured", [True, False], ids=["beside a measured file", "alone"])
def test_a_page_says_so_before_any_number_and_ranks_none(measured: bool) -> None:
    files = [made.profile(made.timed("eager", 100.0), made.timed("fast", 80.0))] if measured else []
    text = rendered(*files, races_made.foresight())
    said = Read(text).text
    assert said.index("Predicted for NVIDIA Z1, not measured there") < said.index("Predicted, not measured ")
    before = text[: text.index('id="predicted"')]
    assert "fused" not in before
    assert ("has the lowest" in before) == measured
    assert text.count("(predicted)") == 2
