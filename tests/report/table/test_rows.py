"""A line for each backend of each race."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.races_made import emulated, failed, foresight, profile, race, source

from mlpfusion.report.table.columns import picked
from mlpfusion.report.table.rows import laid_out
from mlpfusion.stages.tabulate.races import of_sources

if TYPE_CHECKING:
    from mlpfusion.report.table.model import Table


def table(*races: object, columns: tuple[str, ...] = ("event_us", "speedup")) -> Table:
    return laid_out(races, picked(columns, races, "event_us", "eager"), "event_us", "eager")  # type: ignore[arg-type]


def test_rows_have_the_backend_and_the_named_columns() -> None:
    found = table(race({"fused": 0.5}))
    assert [column.key for column in found.columns] == ["backend", "event_us", "speedup"]
    assert [line.cells[0].text for line in found.lines] == ["eager", "fused"]
    assert found.lines[0].cells[2].text == "baseline"


def test_the_best_has_the_mark_in_each_ranked_column_and_says_so_to_programs() -> None:
    found = table(race({"fused": 0.5}), columns=("event_us", "speedup", "peak_bytes"))
    assert [[cell.best for cell in line.cells] for line in found.lines] == [[False] * 4, [False, True, True, False]]
    assert [line.data["event_us_best"] for line in found.lines] == [False, True]


def test_races_are_ranked_each_for_itself() -> None:
    found = table(race({"fused": 0.5}, 16), race({"fused": 1.5}, 256))
    best = [(line.data["tokens"], line.data["backend"]) for line in found.lines if line.data.get("event_us_best")]
    assert best == [(16, "fused"), (256, "eager")]


def test_what_was_not_measured_is_shown_unranked_and_says_what_it_is() -> None:
    (there,) = of_sources([source(foresight())])
    measured = race({"fused": 0.5}, extra=(failed(), emulated()))
    found = table(measured, there, columns=("event_us", "predicted_us"))
    shown = {line.cells[1].text: line for line in found.lines if line.kind != "measured"}
    assert list(shown) == ["hub", "triton (emulated)", "fused (predicted)", "eager (predicted)", "odd"]
    assert not any(cell.best for line in shown.values() for cell in line.cells)
    assert {line.data["event_us_best"] for line in shown.values()} == {None}


def test_every_line_names_its_file_and_digest() -> None:
    a, b = source(profile({}, 16), "a.json"), source(profile({}, 256), "b.json")
    found = table(*of_sources([a, b]), columns=("event_us",))
    assert [(line.data["file"], line.data["sha256"]) for line in found.lines] == [
        ("a.json", a.digest),
        ("b.json", b.digest),
    ]
