"""What is shown of a study that ran: winners, means with intervals, failures by reason."""

from __future__ import annotations

import csv
import json

import pytest
from msgspec.structs import replace
from support.choices_made import HERE
from support.studies_made import read

from mlpfusion.environment import conditions
from mlpfusion.errors import UsageError
from mlpfusion.records.sweep.study import Kept, Outcome, OverEager, Study
from mlpfusion.report.sweep import summary
from mlpfusion.stages.sweep import cells
from mlpfusion.storage import results


def study(folder):
    asked = read(folder)
    one, four = cells.product(asked.work, ["cpu"])
    outcome = Outcome(
        clock="wall_us",
        winner="fused",
        tied=("packed",),
        speeds={
            "eager": OverEager(median=1.0),
            "fused": OverEager(median=0.5, low=0.5 / 1.01, high=0.5 * 1.01),
            "packed": OverEager(median=0.5),
        },
        failed={"liger": "it | crashed"},
    )
    other = replace(outcome, winner="eager", tied=(), speeds={"fused": OverEager(median=2.0, low=1.98, high=2.02)})
    kept = (
        Kept(cell=one, digest="1", state="finished", outcome=outcome),
        Kept(cell=four, digest="2", state="finished", outcome=other),
        Kept(cell=replace(four, gpu="h200"), digest="3", state="waiting", reason="no h200 is here"),
    )
    return Study(
        schema=1,
        kind="study",
        mlpfusion="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        name="small",
        definition="d",
        settings=asked.settings,
        models=asked.models,
        cells=kept,
        nodes={"node 1": conditions.conditions(HERE, ["eager"])},
    )


def test_winners_means_and_failures(tmp_path):
    text = summary.render(study(tmp_path))
    lines = text.splitlines()
    words = [line.split() for line in lines]
    assert lines[0] == "study small: 3 cells, 2 finished, 1 waiting; host clocks exclusive"
    assert any(
        line.split() == ["tiny", "inference", "float32", "cpu", "fused", "≈", "packed", "eager"] for line in lines
    )
    assert ["fused", "2", "1.000x", "[0.993–1.007]"] in words
    assert ["packed", "1", "2.00x"] in words
    assert "2x liger: it | crashed" in lines
    assert "1x waiting: no h200 is here" in lines


def test_other_formats(tmp_path):
    made = study(tmp_path)
    rows = list(csv.DictReader(summary.render(made, "csv").splitlines()))
    assert [(row["tokens"], row["backend"], row["place"]) for row in rows] == [
        ("1", "eager", ""),
        ("1", "fused", "won"),
        ("1", "packed", "tied"),
        ("1", "liger", "failed"),
        ("4", "fused", ""),
        ("4", "eager", "won"),
        ("4", "liger", "failed"),
        ("4", "", ""),
    ]
    assert rows[1]["speedup"] == "2.0"
    assert json.loads(summary.render(made, "json"))["kind"] == "study"
    assert summary.render(made, "github").count("| tiny") == 2
    with pytest.raises(UsageError, match="unknown format 'pdf'"):
        summary.render(made, "pdf")


def test_a_study_is_read_as_it_was_written(tmp_path):
    made = study(tmp_path)
    results.save(made, tmp_path / "study.json")
    assert results.load_study(tmp_path / "study.json") == made
    assert results.load_any(tmp_path / "study.json") == made
