"""bench/tiles.py: the fit finds the costs behind times that follow the estimate, and the tables hold what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from mlpfusion_kernels.gate_up import configs
from mlpfusion_kernels.gate_up.choice import choose, time_us, work
from mlpfusion_kernels.gate_up.configs import Card, Cost, Shared
from support.bench import bench
from support.paths import RESULTS

from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

H200 = Card((9, 0), 132, 227 * 1024)
RECORDED = RESULTS / "h200-tiles.json"
SHAPES = [(d, h) for d in (768, 2048, 8192) for h in (1792, 14336)]


@pytest.fixture(scope="module")
def tiles() -> ModuleType:
    return bench("tiles")


def test_the_fit_finds_the_costs_behind_the_times(tiles: ModuleType) -> None:
    made = {tiles.named(config): config for config in tiles.fitted("forward")}
    truth = {name: Cost(0.5 + 0.05 * place, 4.0 + place) for place, name in enumerate(made)}
    shared = Shared(0.8, 3e6, 0.3, 2e-4)
    points = []
    for tokens in tiles.TOKENS:
        for d, h in SHAPES:
            times = {name: time_us(work(made[name], tokens, d, h, 132), truth[name], shared) for name in made}
            points.append(
                tiles.Tiles.Point(
                    use="forward", half="tuning", tokens=tokens, hidden_size=d, intermediate_size=h, times_us=times
                )
            )
    found = tiles.fit(points, made, 132)
    for point in points:
        best = tiles.regret(point, tiles.chosen(found, made, point, 132), made)
        assert best < 1.01
    for name, cost in truth.items():
        assert found.costs[name].start_us == pytest.approx(cost.start_us, rel=0.1)


@pytest.mark.parametrize("use", ["forward", "training"])
def test_the_tables_hold_what_the_recorded_file_gives(tiles: ModuleType, use: str) -> None:
    result = tiles.read(RECORDED)
    points = [point for point in result.rows if (point.use, point.half) == (use, "tuning")]
    fitted = tiles.fitted(use)
    found = tiles.fit(points, {tiles.named(config): config for config in fitted}, 132)
    for config, cost in fitted.items():
        # Another build of PyTorch may end the search a little elsewhere.
        assert found.costs[tiles.named(config)].start_us == pytest.approx(cost.start_us, rel=0.05)
        assert found.costs[tiles.named(config)].efficiency == pytest.approx(cost.efficiency, rel=0.05)


@pytest.mark.parametrize("half", ["tuning", "held-out"])
@pytest.mark.parametrize("use", ["forward", "training"])
def test_the_chosen_tile_is_near_the_best_where_it_was_measured(tiles: ModuleType, use: str, half: str) -> None:
    tables = {tiles.named(config): config for rule in getattr(configs.SM90, use) for config in rule.configs}
    ratios = []
    for point in tiles.read(RECORDED).rows:
        if (point.use, point.half) == (use, half):
            shape = (point.tokens, point.hidden_size, point.intermediate_size)
            chosen = choose(H200, torch.bfloat16, *shape, training=use == "training")
            ratios.append(tiles.regret(point, tiles.named(chosen), tables))
    assert len(ratios) >= 40
    assert max(ratios) < 1.15
    assert sum(ratios) / len(ratios) < 1.02


def test_a_file_of_another_kind_is_refused_by_name(tiles: ModuleType, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"kind": "grid"}')
    with pytest.raises(UsageError, match=r"other\.json' is no result of this script"):
        tiles.read(other)
