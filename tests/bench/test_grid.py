"""bench/grid.py: the plan, what a recorded grid says, and what is measured when a run goes on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.bench import bench

from mlpfusion.device import detect
from mlpfusion.environment.machine import collect
from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


@pytest.fixture(scope="module")
def grid() -> ModuleType:
    return bench("grid")


@pytest.fixture(scope="module")
def rows() -> ModuleType:
    return bench("fused_rows")


def measured(grid: ModuleType, rows: ModuleType, place: int, **times: float) -> Any:
    """The row of a planned point in which each backend takes its time but for a percent."""
    planned, _ = grid.plan()[place]
    peers = tuple(
        rows.Peer(
            name=name,
            status="ok",
            samples={"graph_us": tuple(time * (1 + (one % 3 - 1) / 100) for one in range(30))},
        )
        for name, time in times.items()
    )
    return rows.Row(key=planned.key, workload=planned.workload, created="2026-01-01", seconds=1.0, peers=peers)


def made(grid: ModuleType, *rows: Any) -> Any:
    here = detect("cpu")
    return grid.Grid(device=here, environment=collect(here, {}), packages={}, shares=grid.shares(), rows=rows)


def test_the_plan_covers_the_grid_once(grid: ModuleType) -> None:
    planned = [one for one, _ in grid.plan()]
    keys = [one.key for one in planned]
    assert len(keys) == len(set(keys)) == 144 + 24 + 24
    kinds = [grid.kind_of(one.workload) for one in planned]
    assert {kind: kinds.count(kind) for kind in kinds} == {"forward": 144, "forward, float16": 24, "training": 24}
    for kind in ("forward, float16", "training"):  # spread over shares and token counts
        some = [one.workload for one in planned if grid.kind_of(one.workload) == kind]
        assert {work.tokens for work in some} == set(grid.TOKENS)
        assert len({msgspec.structs.replace(work.spec, dtype="bfloat16") for work in some}) == len(grid.shares())
    tuned = [grid.AUTOTUNED in names for _, names in grid.plan()]
    assert tuned == sorted(tuned), "the slowest come last"
    assert sum(grid.AUTOTUNED in names for _, names in grid.plan()) == len(grid.shares())
    halves = [share.half for share in grid.shares()]
    assert halves.count("tuning") == halves.count("held-out")
    shapes = [(share.spec.hidden_size, share.spec.intermediate_size) for share in grid.shares()]
    assert len(set(shapes)) == len(shapes), "a held-out shape would be one that was tuned on"


def test_a_loss_is_counted_marked_and_listed(grid: ModuleType, rows: ModuleType) -> None:
    won = measured(grid, rows, 0, eager=20.0, packed=15.0, fused=10.0)
    lost = measured(grid, rows, 1, eager=9.0, packed=15.0, fused=10.0)
    page = grid.page(made(grid, won, lost))
    assert "1.50" in page
    assert "**0.90**" in page
    halves = [line for line in page.splitlines() if "geometric mean" in line]
    assert sum("1 below 0.99 of the best baseline, 1 slower than eager" in line for line in halves) == 1
    worst = page.splitlines()[page.splitlines().index("the 10 worst points:") + 4]
    assert "eager" in worst
    assert "0.900" in worst


def test_a_point_without_fused_has_no_ratio(grid: ModuleType, rows: ModuleType) -> None:
    assert grid.against_best(measured(grid, rows, 0, eager=20.0)) is None
    assert grid.against_best(measured(grid, rows, 0, fused=20.0)) is None


@settings(max_examples=rings.examples(20))
@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=40))
def test_the_geometric_mean_lies_in_its_interval(grid: ModuleType, ratios: list[float]) -> None:
    mean, low, high = grid.geometric_mean(ratios)
    assert min(ratios) * (1 - 1e-9) <= low <= high <= max(ratios) * (1 + 1e-9)
    assert math.isclose(mean, math.prod(ratios) ** (1 / len(ratios)), rel_tol=1e-9)


def test_a_run_goes_on_with_what_is_missing(
    grid: ModuleType, rows: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, few = [], grid.plan()[:6]
    monkeypatch.setattr(grid, "plan", lambda: few)

    def measure(planned: Any, here: Any, *, peers: Any, rounds: int, replays_alone: bool) -> Any:
        asked.append(planned.workload.tokens)
        return measured(grid, rows, len(asked), eager=2.0, fused=1.0)

    monkeypatch.setattr(grid.fused, "measure", measure)
    out = tmp_path / "grid.json"
    begun = made(grid, measured(grid, rows, 0, eager=2.0, fused=1.0))
    done = grid.measure(begun, out, budget_s=math.inf, rounds=30)
    assert len(asked) == len(grid.plan()) - 1
    assert grid.read(out) == done
    assert grid.begun(out, made(grid)) == done
    assert grid.measure(done, out, budget_s=math.inf, rounds=30) == done
    assert len(asked) == len(grid.plan()) - 1


@pytest.mark.parametrize("field", ["kernels", "packages"])
def test_a_grid_of_another_version_is_not_continued(grid: ModuleType, tmp_path: Path, field: str) -> None:
    out, fresh = tmp_path / "grid.json", made(grid)
    changed = {"kernels": "0123456789abcdef", "packages": {"quack-kernels": "0.0.1"}}[field]
    out.write_text(grid.fused.encode(msgspec.structs.replace(fresh, **{field: changed})))
    with pytest.raises(UsageError, match=r"0123456789abcdef there|0\.0\.1.* there"):
        grid.begun(out, fresh)


def test_another_cards_grid_is_not_continued(grid: ModuleType, tmp_path: Path) -> None:
    out, fresh = tmp_path / "grid.json", made(grid)
    other = msgspec.structs.replace(fresh, device=msgspec.structs.replace(fresh.device, name="another card"))
    out.write_text(grid.fused.encode(other))
    with pytest.raises(UsageError, match="another card"):
        grid.begun(out, fresh)
    out.write_text("{}")
    with pytest.raises(UsageError, match="no result of this script"):
        grid.begun(out, fresh)


def test_named_baselines_are_raced_alone_and_shown(
    grid: ModuleType, rows: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    raced: list[tuple[str, ...]] = []

    def one(planned: Any, here: Any, *, peers: tuple[str, ...], rounds: int, replays_alone: bool) -> Any:
        raced.append(peers)
        return measured(grid, rows, len(raced) - 1, **dict.fromkeys(peers, 10.0))

    monkeypatch.setattr(grid.fused, "measure", one)
    monkeypatch.setattr(grid, "plan", lambda plan=grid.plan: plan()[:2])
    found = grid.measure(made(grid), tmp_path / "grid.json", budget_s=1e9, rounds=3, baselines=("packed", "eager"))
    assert raced == [("packed", "eager", "fused")] * 2
    assert "baselines: eager, packed\n" in grid.page(found)


def test_the_parts_of_two_cards_are_put_together(grid: ModuleType, rows: ModuleType, tmp_path: Path) -> None:
    first, second, third = (measured(grid, rows, place, eager=2.0, fused=1.0) for place in range(3))
    again = msgspec.structs.replace(second, created="2026-02-02")
    parts = [tmp_path / "1.json", tmp_path / "2.json"]
    for path, some in zip(parts, ((third, second), (again, first)), strict=True):
        path.write_text(grid.fused.encode(made(grid, *some)))
    found = grid.joined(parts)
    assert found.rows == (first, second, third), "in the order of the plan, each once"
    other = made(grid, first)
    other = msgspec.structs.replace(other, device=msgspec.structs.replace(other.device, name="another card"))
    parts[1].write_text(grid.fused.encode(other))
    with pytest.raises(UsageError, match="another card"):
        grid.joined(parts)


def test_a_part_measures_its_own_points(
    grid: ModuleType, rows: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid.fused, "measure", lambda *_, **__: measured(grid, rows, 0, eager=2.0, fused=1.0))
    parts = [
        grid.measure(made(grid), tmp_path / f"{part}.json", budget_s=math.inf, rounds=3, part=slice(part, None, 2))
        for part in (0, 1)
    ]
    done = [row.key for part in parts for row in part.rows]
    assert sorted(done) == sorted(planned.key for planned, _ in grid.plan())


def test_kinds_of_points_are_summed_up_apart(grid: ModuleType, rows: ModuleType) -> None:
    places = {grid.kind_of(planned.workload): place for place, (planned, _) in enumerate(grid.plan())}
    page = grid.page(made(grid, *(measured(grid, rows, place, eager=2.0, fused=1.0) for place in places.values())))
    for kind, planned in (("forward", 72), ("forward, float16", 12), ("training", 12)):
        assert sum(line.startswith(f"{kind}, ") and f"1 of {planned} points" in line for line in page.splitlines()) == 1
