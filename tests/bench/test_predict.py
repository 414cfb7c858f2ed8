"""bench/predict.py: what it leaves out is not used, and the committed page is what its figures say."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace
from support import products_made
from support.bench import bench
from support.paths import RESULTS, ROOT
from support.products_made import A100

from mlpfusion.stages.predict import sources
from mlpfusion.stages.predict.table import Table
from mlpfusion.storage import results

if TYPE_CHECKING:
    from types import ModuleType

KEPT: dict[str, Any] = json.loads((RESULTS / "predict.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return bench("predict")


def shares(cell: str) -> list[float]:
    return [float(each.strip(" %")) / 100 for each in cell.split("/")]


def test_a_smooth_card_is_met_and_a_wild_one_is_not(script: ModuleType) -> None:
    table = products_made.made()
    large, small = script.held_out(A100, table)[0], script.held_out(A100, products_made.made(sides=(64, 128, 256)))[1]
    assert (large[1], small[1]) == ("n, k ≥ 512", "smaller")
    assert all(shares(cell)[0] < 0.05 for cell in large[2:])
    noise = np.exp(np.random.default_rng(0).normal(0, 0.5, len(table)))
    wild = script.held_out(A100, Table(A100, "", table.shapes, table.us * noise, 0.5))[0]
    assert all(shares(cell)[0] > 0.2 for cell in wild[2:])


def test_cards_that_only_differ_by_their_datasheets_are_scaled_without_error(script: ModuleType) -> None:
    table = products_made.made()
    assert all(cell == "0.00 / 0.00" for cell in script.scaled_from(table, table)[2:])
    slower = Table("NVIDIA H200", "", table.shapes, table.us, 0.03)
    assert all(float(cell.split("/")[0]) > 0.3 for cell in script.scaled_from(slower, table)[2:])


def test_a_row_without_times_has_none(script: ModuleType) -> None:
    row = results.load(RESULTS / "h200-profile.json").rows[0]
    assert row.traffic is not None
    blind = script.without_times(row)
    assert [step.time_us for step in blind.traffic.steps] == [None] * len(row.traffic.steps)
    assert script.without_times(replace(row, traffic=None)).traffic is None


def test_recorded_calls_are_predicted_from_the_other_mlp(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "installed", lambda card: None)
    monkeypatch.setattr(sources, "missing", lambda card: "none")
    profiles, assumed = script.recorded()
    name, profile = next(each for each in profiles if each[0] == "h200-choose-article/inference-8192.json")
    assert assumed[name].workload.spec.hidden_size == 2048
    calls = script.mlps([(name, profile)], assumed)
    true = {row.backend: row.clocks.kernel_us.median for row in profile.rows if row.clocks and row.clocks.kernel_us}
    assert {each["backend"]: each["kernel_us"] for each in calls} == {
        backend: us for backend, us in true.items() if backend in {each["backend"] for each in calls}
    }
    assert {"eager", "compile", "fused"} <= {each["backend"] for each in calls}


def test_the_page_is_made_of_the_figures(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "results_line", lambda: KEPT["tables"])
    found = {name: lines for name, lines in KEPT.items() if name not in ("schema", "kind", "tables", "calls")}
    assert script.text(found, KEPT["calls"]) == (RESULTS / "predict.md").read_text("utf-8")


def test_what_the_pages_say_of_an_a100_is_what_was_predicted() -> None:
    shown = {name: (us, interval) for name, us, interval in KEPT["reference"]}
    readme = (ROOT / "README.md").read_text("utf-8")
    said = re.findall(r"`([\w-]+)` (\d+) \[(\d+–\d+)\] µs", readme)
    assert {name for name, *_ in said} >= {"eager", "compile", "fused"}
    for name, us, interval in said:
        assert shown[name] == (us, interval)
    page = (ROOT / "docs" / "predict.md").read_text("utf-8")
    listed = re.findall(r"^\| ([\w-]+) +\| +(\d+) \| +(\d+–\d+) \|$", page, re.MULTILINE)
    assert {name: (us, interval) for name, us, interval in listed} == shown
