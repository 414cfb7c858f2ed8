"""The lines of means over shapes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from support.races_made import failed, race

from mlpfusion.report.table.averages import averaged
from mlpfusion.report.table.columns import picked
from mlpfusion.report.table.rows import laid_out

if TYPE_CHECKING:
    from mlpfusion.report.table.model import Table


def table(*races: object, columns: tuple[str, ...] = ("speedup",)) -> Table:
    return laid_out(races, picked(columns, races, "event_us", "eager"), "event_us", "eager")  # type: ignore[arg-type]


def test_a_mean_is_the_geometric_one_of_the_speedups_shown() -> None:
    found = table(race({"fused": 0.5}, 16), race({"fused": 0.8}, 256))
    speedups = [line.data["speedup"] for line in found.lines if line.kind == "measured" and line.data["speedup"]]
    (mean,) = (line for line in found.lines if line.kind == "mean" and line.data["backend"] == "fused")
    assert mean.data["speedup"] == pytest.approx(math.sqrt(math.prod(speedups)))  # type: ignore[arg-type]
    assert mean.data["shapes"] == 2
    assert mean.cells[0].text == "mean of 2"


@pytest.mark.parametrize(
    "races",
    [
        [race({"fused": 0.5}, 16)],
        [race({"fused": 0.5}, 16), race({"fused": 0.5}, 256, mode="training")],
        [race({"fused": 0.5}, 16), race({"fused": 0.5}, 16, name="b.json", seed=2)],
        [race({"fused": 0.5}, 16), race({"triton": 0.5}, 256)],
    ],
    ids=["one shape", "two modes", "one shape twice", "no common row"],
)
def test_there_is_no_mean_over_what_are_no_two_shapes(races: list[object]) -> None:
    assert not [line for line in table(*races).lines if line.kind == "mean" and line.data["backend"] != "eager"]


def test_modes_have_means_of_their_own() -> None:
    races = [race({"fused": 0.5}, n, mode=mode) for n in (16, 256) for mode in ("inference", "training")]
    found = [line for line in table(*races).lines if line.kind == "mean" and line.data["backend"] == "fused"]
    assert [line.data["mode"] for line in found] == ["inference", "training"]


def test_a_row_that_failed_somewhere_has_a_mean_over_fewer_shapes_and_none_is_the_best() -> None:
    races = [race({"fused": 0.5, "triton": 0.9}, n) for n in (16, 64)]
    races.append(race({"triton": 0.9}, 256, extra=(failed("fused"),)))
    (found,) = averaged(races, "event_us", "eager")
    assert {name: mean.shapes for name, mean in found.means.items()} == {"eager": 3, "fused": 2, "triton": 3}
    assert found.best == frozenset()


def test_without_the_speedup_there_is_no_mean() -> None:
    assert not [line for line in table(race({}, 16), race({}, 256), columns=("event_us",)).lines if line.kind == "mean"]
