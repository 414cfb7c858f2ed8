"""CSV and JSON: every value, in full precision."""

from __future__ import annotations

import csv
import io
import json

import pytest
from support.races_made import HOSTILE, failed, foresight, profile, source

from mlpfusion.report.table.document import Options, document
from mlpfusion.report.table.formats import data

MADE = [source(profile({"fused": 0.5}, n, extra=(failed(),)), f"{n}.json") for n in (16, 256)]


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_a_line_for_each_row_and_each_mean_with_its_kind() -> None:
    found = read(data.csv(document(MADE, Options())))
    assert [line["kind"] for line in found] == ["measured", "measured", "failed"] * 2 + ["mean"] * 2
    clock = MADE[0].result.rows[1].clocks.event_us  # type: ignore[union-attr]
    assert float(found[1]["event_us"]) == clock.median  # type: ignore[union-attr]
    assert found[1]["sha256"] == MADE[0].digest


def test_json_has_rows_methods_and_the_marks() -> None:
    found = json.loads(data.json_text(document(MADE, Options())))
    (table,) = found["tables"]
    assert [row["event_us_best"] for row in table["rows"][:3]] == [False, True, None]
    assert {"label", "text"} == set(found["methods"][0])


def test_predicted_rows_have_their_interval_and_kind() -> None:
    found = json.loads(data.json_text(document([source(foresight())], Options())))["tables"][0]["rows"]
    assert [(row["kind"], row["predicted_us_low"]) for row in found] == [
        ("predicted", 90.0),
        ("predicted", 140.0),
        ("unavailable", None),
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_comes_back_from_json_and_steers_nothing_in_csv(name: str) -> None:
    found = document([source(profile({name: 0.5}))], Options())
    text = data.json_text(found)
    assert json.loads(text)["tables"][0]["rows"][1]["backend"] == name
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert len(read(data.csv(found))) == 2
