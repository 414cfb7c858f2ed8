"""What changed between two results, as `mlpfusion compare` judges it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.comparisons_made import raced, saved
from support.figures_made import HOSTILE, check

from mlpfusion.errors import UsageError
from mlpfusion.report.figures import registry
from mlpfusion.stages.compare import run
from mlpfusion.storage.gathered import Gathered, gather
from mlpfusion.storage.private import last_parts

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.report.figures.figure import Figure


def drawn(*names: str) -> Figure:
    return registry.make("compare", gather(names))


def test_verdicts_and_intervals_are_those_of_the_comparison(tmp_path: Path) -> None:
    old = saved(tmp_path, "old.json", raced({"triton": 0.9, "liger": 0.9}, seed=1))
    new = saved(tmp_path, "new.json", raced({"triton": 0.8, "liger": 0.9}, seed=2))
    made = drawn(old, new)
    check(made)
    judged = run.compare(old, new)
    wanted = [
        (row.baseline, time.word, time.ratio, time.low, time.high)
        for row in judged.rows
        for time in row.times
        if time.word is not None
    ]
    found = [dict(zip(made.columns, row, strict=True)) for row in made.rows]
    assert [tuple(row[name] for name in ("baseline", "verdict", "ratio", "low", "high")) for row in found] == wanted
    assert {row["baseline"]: row["verdict"] for row in found}["triton"] == "faster"
    assert "times are relative to eager" in made.caption


def test_names_are_data(tmp_path: Path) -> None:
    names = dict.fromkeys(HOSTILE, 0.9)
    old = saved(tmp_path, "old <img onerror=x>.json", raced(names, seed=1, rounds=20))
    new = saved(tmp_path, "new.json", raced(names, seed=2, rounds=20))
    made = drawn(old, new)
    check(made)
    assert {row[1] for row in made.rows} == set(last_parts(HOSTILE).values())  # what looks like a path is cut


def test_two_results_are_needed(tmp_path: Path) -> None:
    one = saved(tmp_path, "one.json", raced({"triton": 0.9}))
    with pytest.raises(UsageError, match="needs two results, a baseline and a candidate; 1 are given"):
        drawn(one)


def test_stdin_is_read_once() -> None:
    files = [Gathered(name, raced({"triton": 0.9}), name) for name in ("-", "b.json")]
    with pytest.raises(UsageError, match="stdin is read only once"):
        registry.make("compare", files)


def test_what_compare_refuses_is_refused(tmp_path: Path) -> None:
    old = saved(tmp_path, "old.json", raced({"triton": 0.9}))
    new = saved(tmp_path, "new.json", raced({"triton": 0.9}, mlpfusion="0.2.0", clocks=("event_us",)))
    with pytest.raises(UsageError, match=r"old.json|new.json"):
        drawn(old, new)
