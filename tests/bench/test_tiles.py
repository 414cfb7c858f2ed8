"""bench/tiles.py: the fit finds the costs behind times that follow the estimate, and the tables hold what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
from mlpfusion_kernels.gate_up import configs
from mlpfusion_kernels.gate_up.choice import choose, few_tokens, time_us, work
from mlpfusion_kernels.gate_up.configs import Card, Cost, Shared
from support.bench import bench
from support.paths import RESULTS

from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

H200 = Card((9, 0), 132, 227 * 1024)
RECORDED = [RESULTS / "h200-tiles.json", RESULTS / "h200-tiles-192.json"]
TALL = [(2048, 16384), (4096, 14336), (3584, 14336)]
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
    result = tiles.joined([tiles.read(path) for path in RECORDED])
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
    streamed = few_tokens(H200.capability, torch.bfloat16) if use == "forward" else 0  # no tile runs there
    ratios = []
    for point in tiles.joined([tiles.read(path) for path in RECORDED]).rows:
        if point.tokens <= streamed:
            continue
        shape = (point.tokens, point.hidden_size, point.intermediate_size)
        chosen = tiles.named(choose(H200, torch.bfloat16, *shape, training=use == "training"))
        # The first file is older than the tile of 192 tokens.
        if (point.use, point.half) == (use, half) and chosen in point.times_us:
            ratios.append(tiles.regret(point, chosen, tables))
    assert len(ratios) >= 40
    assert max(ratios) < 1.15
    assert sum(ratios) / len(ratios) < 1.02


def test_a_file_of_another_kind_is_refused_by_name(tiles: ModuleType, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"kind": "grid"}')
    with pytest.raises(UsageError, match=r"other\.json' is no result of this script"):
        tiles.read(other)


def test_files_of_different_cards_are_not_fitted_together(tiles: ModuleType) -> None:
    one = tiles.read(RECORDED[0])
    device = msgspec.structs.replace(one.device, name="NVIDIA H100")
    with pytest.raises(UsageError, match="these files are of NVIDIA H100 and NVIDIA H200"):
        tiles.joined([one, msgspec.structs.replace(one, device=device)])


def test_the_tile_of_three_warpgroups_is_taken_where_it_was_the_fastest_by_far(tiles: ModuleType) -> None:
    for point in tiles.read(RECORDED[1]).rows:
        times = dict(sorted(point.times_us.items(), key=lambda one: one[1]))
        names = [name for name in times if "x" in name and " p" in name]
        if "192x" in names[0] and times[names[1]] > 1.1 * times[names[0]]:
            shape = (point.tokens, point.hidden_size, point.intermediate_size)
            chosen = choose(H200, torch.bfloat16, *shape, training=point.use == "training")
            assert chosen.warpgroups == 3, point


def test_no_more_tokens_get_the_tile_of_three_warpgroups_than_it_was_timed_with(tiles: ModuleType) -> None:
    timed = max(point.tokens for point in tiles.read(RECORDED[1]).rows)
    for training in (False, True):
        for tokens in (timed + 1, 8192, 16384):
            chosen = [choose(H200, torch.bfloat16, tokens, d, h, training=training) for d, h in SHAPES + TALL]
            assert all(config.warpgroups == 2 for config in chosen)
