"""bench/tiles.py: the fit finds the costs behind times that follow the estimate, and the tables hold what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from mlpfusion_kernels.gate_up import configs
from mlpfusion_kernels.gate_up.choice import choose, choose_backward, few_tokens, time_us, work
from mlpfusion_kernels.gate_up.configs import Card, Cost, Shared
from support.bench import bench
from support.paths import RESULTS

from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from mlpfusion_kernels.gate_up.configs import Config

H200 = Card((9, 0), 132, 227 * 1024)
RECORDED = RESULTS / "h200-tiles.json"
USES = ["forward", "training", "backward"]
SHAPES = [(d, h) for d in (768, 2048, 8192) for h in (1792, 14336)]


@pytest.fixture(scope="module")
def tiles() -> ModuleType:
    return bench("tiles")


def test_the_fit_finds_the_costs_behind_the_times(tiles: ModuleType) -> None:
    made = {tiles.named(config): config for config in tiles.fitted("forward")}
    places = {config._replace(split=1): place for place, config in enumerate(made.values()) if config.split == 1}
    truth = {
        name: Cost(0.5 + 0.05 * places[config._replace(split=1)], 4.0 + places[config._replace(split=1)])
        for name, config in made.items()
    }
    shared = Shared(0.8, 3e6, 0.3, 2e-4, 2.0, 5e4, 0.3)
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


@pytest.mark.parametrize("use", USES)
def test_the_tables_hold_what_the_recorded_file_gives(tiles: ModuleType, use: str) -> None:
    points = [point for point in tiles.read(RECORDED).rows if (point.use, point.half) == (use, "tuning")]
    fitted = tiles.fitted(use)
    found = tiles.fit(points, {tiles.named(config): config for config in fitted}, 132)
    for config, cost in fitted.items():
        # Another build of PyTorch may end the search a little elsewhere.
        assert found.costs[tiles.named(config)].start_us == pytest.approx(cost.start_us, rel=0.05)
        assert found.costs[tiles.named(config)].efficiency == pytest.approx(cost.efficiency, rel=0.05)


def chosen_for(point: Any) -> Config:
    """The configuration that ships for a point's shape and use."""
    shape = (point.tokens, point.hidden_size, point.intermediate_size)
    if point.use == "backward":
        return choose_backward(H200, torch.bfloat16, *shape)
    return choose(H200, torch.bfloat16, *shape, training=point.use == "training")


@pytest.mark.parametrize("half", ["tuning", "held-out"])
@pytest.mark.parametrize("use", USES)
def test_the_chosen_tile_is_near_the_best_where_it_was_measured(tiles: ModuleType, use: str, half: str) -> None:
    tables = {tiles.named(config): config for rule in getattr(configs.SM90, use) for config in rule.configs}
    streamed = few_tokens(H200.capability, torch.bfloat16) if use == "forward" else 0  # no tile runs there
    ratios = []
    for point in tiles.read(RECORDED).rows:
        if point.tokens > streamed and (point.use, point.half) == (use, half):
            ratios.append(tiles.regret(point, tiles.named(chosen_for(point)), tables))
    assert len(ratios) >= 40
    assert max(ratios) < 1.25
    assert sum(ratios) / len(ratios) < 1.02


def test_a_file_of_another_kind_is_refused_by_name(tiles: ModuleType, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"kind": "grid"}')
    with pytest.raises(UsageError, match=r"other\.json' is no result of this script"):
        tiles.read(other)


def test_files_of_different_cards_are_not_fitted_together(tiles: ModuleType) -> None:
    one = tiles.read(RECORDED)
    device = msgspec.structs.replace(one.device, name="NVIDIA H100")
    with pytest.raises(UsageError, match="these files are of NVIDIA H100 and NVIDIA H200"):
        tiles.joined([one, msgspec.structs.replace(one, device=device)])


@pytest.mark.parametrize("use", USES)
def test_tiles_are_shared_where_that_was_faster_by_far(tiles: ModuleType, use: str) -> None:
    told = 0
    for point in tiles.read(RECORDED).rows:
        times = {name: time for name, time in point.times_us.items() if " p" in name}
        alone = min(time for name, time in times.items() if " by " not in name)
        if point.use == use and alone > 1.12 * min(times.values()):
            told += 1
            assert chosen_for(point).split > 1, point
    assert told


def test_the_backward_is_timed_at_its_own_shapes(tiles: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(tiles.launch, "gate_up_backward", lambda *operands: calls.append(operands))
    both = torch.zeros(2 * 48, 32)
    weights = tiles.Weights(both[:48], both[48:], both[:48])
    config = next(iter(tiles.fitted("backward")))
    tiles._backward(config, torch.zeros(5, 32), weights, "backward")()
    ((dy, down, gate, up, _, given),) = calls
    assert [tuple(one.shape) for one in (dy, down, gate, up)] == [(5, 32), (32, 48), (5, 48), (5, 48)]
    assert given == config
