"""The simulation of comparisons: what it draws is what it says, and what was recorded keeps the promises."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.bench import bench
from support.paths import RESULTS, ROOT

from mlpfusion.stages.compare import difference

COMPARE = bench("compare")
RECORDED = json.loads((RESULTS / "compare-simulation.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", COMPARE.WORLDS)
def test_processes_have_the_spread_and_the_ratio_that_are_asked_for(name: str) -> None:
    rng, world = np.random.default_rng(1), COMPARE.WORLDS[name]
    own = COMPARE.own_offset(rng, world, 0.007)
    made = COMPARE.times(rng, world, 0.05 + own * rng.standard_normal((600, 1))).tolist()
    found = difference.processes([process[1] for process in made], [process[0] for process in made])
    logs = [each.log for each in found]
    assert len(logs) == 600
    assert np.mean(logs) == pytest.approx(0.05, abs=0.001)
    assert np.std(logs) == pytest.approx(0.007, rel=0.15)


def test_rounds_remember_the_one_before() -> None:
    made = COMPARE._correlated(np.random.default_rng(0), (400, 1), tails=False)[:, 0]
    lag = [np.corrcoef(each[:-1], each[1:])[0, 1] for each in made]
    assert np.mean(lag) == pytest.approx(0.7, abs=0.1)


def test_the_page_shows_what_was_recorded() -> None:
    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    assert f"<!-- simulation -->\n{COMPARE.tables(RECORDED)}\n<!-- /simulation -->" in page


def test_false_alarms_are_one_in_a_hundred_at_most() -> None:
    quiet = [each for each in RECORDED["verdicts"] if each["offset"] == 0]
    assert {each["world"] for each in quiet} == set(COMPARE.WORLDS)
    for each in quiet:
        assert each["slower"] + each["faster"] <= 0.01 + 3 * (0.01 * 0.99 / RECORDED["trials"]) ** 0.5
    assert sum(each["slower"] + each["faster"] for each in quiet) / len(quiet) <= 0.01
    assert sum(each["alarms"] for each in RECORDED["many_rows"]) / len(RECORDED["many_rows"]) <= 0.01
    assert all(each["alarms"] <= 0.01 * each["rows"] for each in RECORDED["halves"])


def test_five_processes_a_side_find_three_percent() -> None:
    slow = [each for each in RECORDED["verdicts"] if each["offset"] == 0.03 and each["processes"] == 5]
    assert len(slow) == len(COMPARE.WORLDS) * len(COMPARE.SPREADS)
    assert min(each["slower"] for each in slow) >= 0.95


def test_the_promised_number_of_processes_decides() -> None:
    made = [each for each in RECORDED["promises"] if each["promised"]]
    kept = sum(each["kept"] * each["promised"] for each in made) / sum(each["promised"] for each in made)
    assert kept >= 0.95
