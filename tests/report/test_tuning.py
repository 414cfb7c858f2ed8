"""A search for configurations as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import msgspec
import pytest
from support import tunings_made
from support.profiles_made import environment
from support.tunings_made import EVEN, FAST, GPU, HERE, SHIPPED, SLOW, SPEC, WRONG, Fake, searched

from mlpfusion.errors import MeasurementError, UsageError
from mlpfusion.records import tuning as tuning_records
from mlpfusion.report import tuning as report
from mlpfusion.stages.tune import run as tune_run

if TYPE_CHECKING:
    from pathlib import Path

file = tunings_made.file  # a fixture


def told(file: Path) -> tuning_records.Tuning:
    asked = tune_run.questions(SPEC, [64, 256, 4096, 8192], "inference", GPU)
    broken = Fake({SHIPPED: 100.0, FAST: 90.0})
    broken.interrupt = MeasurementError("no\ngraph")
    benches = (
        Fake({SHIPPED: 100.0, FAST: 90.0, WRONG: 1.0}, {WRONG: "wrong: by far"}),
        Fake({SHIPPED: 100.0, EVEN: 99.5}, noise=0.03),
        Fake({SHIPPED: 100.0, SLOW: 120.0}),
        broken,
    )
    answers = searched(file, *benches, asked=asked)
    return tuning_records.Tuning(
        schema=1,
        kind="tuning",
        created="2026-01-01T00:00:00+00:00",
        device=GPU,
        environment=environment(torch="2.11"),
        file="tuned.json",
        answers=tuple(answers),
    )


def test_the_table_shows_shipped_best_and_the_speedup(file: Path) -> None:
    text = report.render(told(file))
    lines = {line.split()[1]: line for line in text.splitlines() if line.startswith("forward  ")}
    assert "1.11x [1.11–1.11]" in lines["64"]
    assert lines["64"].endswith("best")
    assert lines["256"].endswith("shipped")
    assert lines["4096"].endswith("–  shipped")
    assert lines["8192"].endswith("–")
    for wanted in (HERE.name, "torch 2.11", "L2 cold", "95%", f"left out: {tune_run.describe(WRONG)}: wrong: by far"):
        assert wanted in text
    assert "forward, 8192 tokens: failed: no graph" in text


def test_the_other_formats_hold_the_same(file: Path) -> None:
    tuning = told(file)
    assert msgspec.json.decode(report.render(tuning, "json"), type=tuning_records.Tuning) == tuning
    rows = report.render(tuning, "csv").splitlines()
    assert len(rows) == 5
    assert rows[0].startswith("device,torch,triton,created,direction,tokens")
    found = next(csv.DictReader(rows))
    assert float(found["speedup_vs_shipped"]) == pytest.approx(float(found["shipped_us"]) / float(found["best_us"]))
    assert float(found["speedup_vs_shipped_low"]) <= float(found["speedup_vs_shipped"]) > 1
    assert "| forward" in report.render(tuning, "github")
    with pytest.raises(UsageError, match="unknown format 'pdf'"):
        report.render(tuning, "pdf")
