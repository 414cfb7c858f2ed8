"""Backends down, shapes across."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.races_made import emulated, failed, foresight, race, source

from mlpfusion.report.table.across import laid_out
from mlpfusion.report.table.columns import every
from mlpfusion.stages.tabulate.races import of_sources

if TYPE_CHECKING:
    from mlpfusion.report.table.model import Table


def table(*races: object, column: str = "speedup") -> Table:
    (shown,) = (each for each in every("event_us", "eager") if each.key == column)
    return laid_out(races, shown, "event_us", "eager")  # type: ignore[arg-type]


def test_each_shape_is_a_column_and_the_mean_is_the_last() -> None:
    found = table(race({"fused": 0.5}, 1), race({"fused": 0.8}, 256))
    assert [column.head for column in found.columns] == ["backend", "1 token", "256 tokens", "mean of 2"]
    assert [line.cells[0].text for line in found.lines] == ["eager", "fused"]
    assert found.lines[1].cells[3].text.startswith("1.58")  # the root of 2 times 1.25


def test_one_shape_is_a_column_too() -> None:
    found = table(race({"fused": 0.5}, 16), column="event_us")
    assert [column.head for column in found.columns] == ["backend", "16 tokens"]
    assert [[cell.best for cell in line.cells] for line in found.lines] == [[False, False], [False, True]]


def test_modes_have_columns_and_means_of_their_own() -> None:
    races = [race({"fused": 0.5}, n, mode=mode) for mode in ("inference", "training") for n in (16, 256)]
    assert [column.head for column in table(*races).columns] == [
        "backend",
        "inference, 16 tokens",
        "inference, 256 tokens",
        "inference, mean of 2",
        "training, 16 tokens",
        "training, 256 tokens",
        "training, mean of 2",
    ]


def test_a_row_that_is_not_there_or_did_not_run_says_which() -> None:
    found = table(race({"fused": 0.5}, 16, extra=(failed(),)), race({"triton": 0.5}, 256))
    shown = {line.cells[0].text: [cell.text for cell in line.cells[1:3]] for line in found.lines}
    assert shown["hub"] == ["failed", "–"]
    assert shown["triton"][0] == "–"


def test_what_was_not_measured_has_a_line_of_its_own_without_a_mark() -> None:
    (there,) = of_sources([source(foresight())])
    found = table(race({"fused": 0.5}, extra=(emulated(),)), there, column="predicted_us")
    kinds = {line.cells[0].text: line.kind for line in found.lines}
    assert kinds["fused"] == "measured"
    assert kinds["fused (predicted)"] == "predicted"
    assert kinds["triton (emulated)"] == "emulated"
    assert not any(cell.best for line in found.lines for cell in line.cells)


def test_all_lines_have_the_same_values_for_programs() -> None:
    found = table(race({"fused": 0.5}, 16), race({"triton": 0.5}, 256))
    assert len({tuple(line.data) for line in found.lines}) == 1
