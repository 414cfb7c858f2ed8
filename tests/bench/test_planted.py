"""bench/planted.py: what is planted, what the splits say of it, and that the docs show the recorded run."""

from __future__ import annotations

import math
import random
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from support.bench import bench
from support.comparisons_made import raced
from support.paths import RESULTS, ROOT

import mlpfusion
from mlpfusion import backend
from mlpfusion.stages.compare.difference import Process

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return bench("planted")


def processes(log: float, count: int = 12, spread: float = 0.001, seed: int = 0) -> list[Process]:
    rng = random.Random(seed)
    return [Process(rng.gauss(log, spread), spread / 5, 60) for _ in range(count)]


@pytest.mark.parametrize("share", [0.0, 0.03, -0.03])
def test_equal_processes_get_no_verdict_and_slow_ones_do(script: ModuleType, share: float) -> None:
    equal = {name: processes(0.0, seed=seed) for seed, name in enumerate("ab")}
    other = {name: processes(math.log1p(share), seed=9 + seed) for seed, name in enumerate("ab")}
    for row in script.judged("graph_us", equal, other, 0.03):
        assert row.alarms == 0
        assert row.found == (script.SPLITS if share > 0 else 0)
        assert row.seen == pytest.approx(share, abs=0.002)


@pytest.mark.parametrize(("equal", "slow"), [(9, 12), (12, 4)])
def test_too_few_processes_are_not_judged(script: ModuleType, equal: int, slow: int) -> None:
    assert script.judged("graph_us", {"a": processes(0.0, equal)}, {"a": processes(0.0, slow)}, 0.03) == []


def test_the_length_of_a_spin_is_that_share_of_the_time(script: ModuleType) -> None:
    found = raced({"triton": 0.5}, clocks=("graph_us", "event_us"))
    times = {row.backend: row.clocks.graph_us.median for row in found.rows}
    assert script.shares(found, ["triton"], 0.03) == {"triton": pytest.approx(0.03 * times["triton"])}


def test_a_backend_that_was_not_timed_ends_it(script: ModuleType) -> None:
    found = raced({"triton": 0.5})
    rows = [msgspec.structs.replace(row, clocks=None, status="failed", reason="no") for row in found.rows]
    with pytest.raises(SystemExit, match="triton was not timed: no"):
        script.shares(msgspec.structs.replace(found, rows=tuple(rows)), ["triton"], 0.03)


def test_the_planted_backends_spin_behind_the_call(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / script.MODULE
    path.write_text(script.SLOW + "\n\nclass SlowEager(Slow):\n    of = 'eager'\n    length = 1000\n")
    made: Any = backend.load(f"{path}:{script._class('eager')}")
    module = mlpfusion.GatedMLP(mlpfusion.MLPSpec(hidden_size=8, intermediate_size=16, dtype="float32"))
    spins = []
    monkeypatch.setattr(sys.modules[type(made).__module__], "spin", spins.append)
    x = torch.randn(3, 8)
    assert torch.equal(made.bind(module)(x), backend.load("eager").bind(module)(x))
    assert spins == [1000]


def test_the_docs_show_the_recorded_run(script: ModuleType) -> None:
    found = msgspec.json.decode((RESULTS / "h200-planted.json").read_bytes(), type=script.Recording)
    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    assert f"<!-- planted -->\n{script.render(found)}\n<!-- /planted -->" in page


def test_the_recorded_profiles_are_judged_as_the_recording_says(script: ModuleType) -> None:
    found = msgspec.json.decode((RESULTS / "h200-planted.json").read_bytes(), type=script.Recording)
    again = script.judge(RESULTS / "h200-planted", script.BACKENDS, 0.03, script.CONTROL)
    for row, before in zip(again.rows, found.rows, strict=True):
        assert (row.backend, row.clock, row.alarms, row.found) == (
            before.backend,
            before.clock,
            before.alarms,
            before.found,
        )
        assert (row.seen, row.spread) == pytest.approx((before.seen, before.spread))
    assert {row.backend for row in found.rows} == set(script.BACKENDS)
