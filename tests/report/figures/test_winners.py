"""Who is fastest where: as a choice has it, or as `choose` decides it from the samples; ties hatched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.comparisons_made import raced
from support.figures_made import figure, of
from support.paths import RESULTS
from support.profiles_made import EAGER, TRITON, profile

from mlpfusion.errors import UsageError
from mlpfusion.report.figures.reading import shapes
from mlpfusion.stages.choose import decide
from mlpfusion.storage import results
from mlpfusion.storage.gathered import gather

if TYPE_CHECKING:
    from pathlib import Path


def test_a_choice_is_shown_as_it_was_made() -> None:
    choice = results.load_choice(RESULTS / "h200-choose-article" / "choice.json")
    made = figure("winners", "h200-choose-article")
    assert [row[2:5] for row in made.rows] == [(p.tokens, p.winner, ", ".join(p.tied)) for p in choice.points]
    assert {row[0] for row in made.rows} == {"article"}


def test_without_a_choice_it_is_decided_as_choose_decides() -> None:
    every = shapes.of(gather([str(RESULTS / "h200-grid.json")]))
    made = figure("winners", "h200-grid.json", clock="graph_us")
    points = [decide.point(shape, "graph_us", {}) for shape in every]
    assert [row[3:6] for row in made.rows] == [(p.winner, ", ".join(p.tied), p.runner_up) for p in points]


def test_ties_are_hatched_and_no_others() -> None:
    made = figure("winners", "h200-grid.json", clock="graph_us")
    tied = sum(bool(row[4]) for row in made.rows)
    hatched = [layer["data"]["values"] for layer in made.spec["layer"] if "data" in layer]
    assert 0 < tied < len(made.rows)
    assert [len(values) for values in hatched] == [tied] * 3
    written = [value["margin"] for value in made.spec["data"]["values"]]
    assert [bool(row[4]) for row in made.rows] == [margin == "" for margin in written]


def test_margins_are_written_where_there_is_room() -> None:
    def has_text(width: int) -> bool:
        return any(
            layer["mark"]["type"] == "text" for layer in figure("winners", "h200-grid.json", width=width).spec["layer"]
        )

    assert (has_text(178), has_text(84)) == (True, False)


@pytest.mark.parametrize("rows", [(EAGER,), (EAGER, TRITON)], ids=["alone", "emulated"])
def test_one_time_alone_wins_nothing(rows) -> None:
    with pytest.raises(UsageError, match="figure 'winners' needs two backends timed together"):
        of("winners", profile(*rows))


def test_the_clock_of_kernels_decides_nothing() -> None:
    with pytest.raises(UsageError, match="takes no clock 'kernel_us'; valid: event_us, graph_us, wall_us"):
        of("winners", raced({"triton": 0.9}), clock="kernel_us")


def test_one_workload_of_two_files_is_two_rows(tmp_path: Path) -> None:
    made = of("winners", raced({"triton": 0.9}), raced({"triton": 1.1}))
    assert [row[0] for row in made.rows] == ["file-1.json", "file-2.json"]
    assert [row[3] for row in made.rows] == ["triton", "eager"]
