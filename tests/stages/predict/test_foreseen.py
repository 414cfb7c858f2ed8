"""Predictions as a file keeps them, which `table` shows beside measured rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.command import run
from support.paths import RESULTS

from mlpfusion.stages.predict import run as predict
from mlpfusion.stages.predict import sources
from mlpfusion.stages.predict.foreseen import foresight
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = RESULTS / "h200-profile.json"


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no tables of measured products are installed, whatever is here."""
    monkeypatch.setattr(sources, "installed", lambda card: None)


def test_every_row_is_there_with_its_interval_or_why_it_is_not_predicted() -> None:
    profile, there = results.load(RECORDED), predict.card("NVIDIA L40S")
    made = predict.predict(profile, there)
    (point,) = foresight(profile, made, there).points
    assert [each.backend for each in point.backends] == [row.backend for row in profile.rows]
    times = {each.backend: each for each in made}
    for each in point.backends:
        if each.backend in times:
            assert (each.low_us, each.high_us) == (times[each.backend].low_us, times[each.backend].high_us)
        else:
            assert each.reason
    least = next(each for each in point.backends if each.verdict == "least")
    assert least.backend == point.least == min(times.values(), key=lambda each: each.predicted_us).backend
    for each in point.backends:
        if each.verdict in ("tied", "slower"):
            assert (each.verdict == "tied") == (each.low_us <= least.high_us)  # type: ignore[operator]


def test_what_predict_prints_as_json_is_a_result_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "predict", str(RECORDED), "--format", "json")
    assert (code, err) == (0, "")
    path = tmp_path / "predicted.json"
    path.write_text(out, encoding="utf-8")
    code, out, err = run(capsys, "table", str(RECORDED), str(path), "--format", "json")
    assert (code, err) == (0, "")
    rows = json.loads(out)["tables"][0]["rows"]
    predicted = [row for row in rows if row["kind"] == "predicted"]
    assert predicted
    assert {row["event_us_best"] for row in predicted} == {None}
    assert all(row["predicted_us_low"] < row["predicted_us"] < row["predicted_us_high"] for row in predicted)


def test_a_damaged_prediction_is_named_with_the_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = json.loads(run(capsys, "predict", str(RECORDED), "--format", "json")[1])
    document["points"][0]["backends"][0]["low_us"] = 1e9
    path = tmp_path / "predicted.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    code, _, err = run(capsys, "table", str(path))
    assert code == 2
    assert "low_us 1000000000.0 is above predicted_us" in err
    assert "$.points[0].backends[0]" in err
