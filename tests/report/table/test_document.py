"""The document of files: rows, order, layout, notes, methods."""

from __future__ import annotations

from typing import Any

import pytest
from support.races_made import emulated, failed, foresight, profile, source

from mlpfusion.errors import UsageError
from mlpfusion.report.table.document import Options, document, races_of
from mlpfusion.report.table.model import Document

ONE = source(profile({"fused": 0.5, "triton": 0.8}, 16, extra=(failed(), emulated("liger"))), "one.json")
TWO = source(profile({"triton": 0.7}, 256), "two.json")


def made(*sources: Any, **options: Any) -> Document:
    return document(sources or (ONE, TWO), Options(**options))


def names(found: Document) -> list[list[object]]:
    groups = found.tables[0].groups
    return [[line.data["backend"] for line in group.lines] for group in groups if group.lines[0].kind != "mean"]


def test_a_table_has_all_races_the_remarks_and_the_methods() -> None:
    found = made()
    assert names(found) == [["eager", "fused", "triton", "hub", "liger"], ["eager", "triton"]]
    assert any(note.startswith("hub: failed") for note in found.tables[0].notes)
    assert "file" in {fact.label for fact in found.methods}


def test_a_row_that_did_not_run_shows_its_status() -> None:
    assert [column.key for column in made().tables[0].columns][:3] == ["tokens", "backend", "status"]
    assert "status" not in [column.key for column in made(TWO).tables[0].columns]


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("event_us", ["fused", "triton", "eager", "hub", "liger"]),
        ("-event_us", ["eager", "triton", "fused", "hub", "liger"]),
        ("-speedup", ["fused", "triton", "eager", "hub", "liger"]),
        ("-speedup_vs_eager", ["fused", "triton", "eager", "hub", "liger"]),
        ("-backend", ["triton", "fused", "eager", "liger", "hub"]),
        ("-peak_bytes", ["eager", "fused", "triton", "hub", "liger"]),
    ],
)
def test_rows_are_sorted_in_their_race_and_what_was_not_measured_comes_last(sort: str, first: list[str]) -> None:
    assert names(made(sort=sort))[0] == first


def test_races_are_sorted_by_what_they_are_of() -> None:
    assert [race.work.tokens for race in races_of((ONE, TWO), Options(sort="-tokens"))] == [256, 16]


@pytest.mark.parametrize("sort", ["-predicted_us", "backend", "-event_us"])
def test_predicted_rows_are_a_race_of_their_own_whatever_the_order(sort: str) -> None:
    found = made(source(foresight(16)), ONE, sort=sort).tables[0]
    kinds = [{line.kind for line in group.lines} for group in found.groups if group.lines[0].kind != "mean"]
    assert sum("predicted" in each for each in kinds) == 1
    assert not any({"predicted", "measured"} <= each for each in kinds)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sort": "speed"}, "unknown column 'speed' of --sort; valid: device, "),
        ({"rows": ("fused", "nobody")}, "--rows names 'nobody', which is in no file; valid: eager, fused"),
        ({"baseline": "hub"}, "--baseline 'hub' was measured in no file; valid: eager, fused, triton"),
        ({"columns": ("nothing",)}, "unknown column 'nothing'"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(**options)


def test_rows_are_those_that_are_named_and_the_best_is_among_them() -> None:
    found = made(rows=("eager", "triton"))
    assert names(found) == [["eager", "triton"], ["eager", "triton"]]
    assert [line.data["event_us_best"] for line in found.tables[0].lines if line.kind == "measured"] == [
        False,
        True,
    ] * 2


def test_speedups_are_relative_to_the_baseline_and_its_name_is_in_the_heading() -> None:
    found = made(baseline="triton", columns=("speedup",))
    assert found.tables[0].columns[-1].head == "speedup vs triton"
    fused = next(line for line in found.tables[0].lines if line.data["backend"] == "fused")
    assert fused.data["speedup"] == pytest.approx(1.6, rel=0.01)
    assert found.tables[0].lines[2].cells[-1].text == "baseline"


def test_each_column_has_a_table_of_its_own_if_backends_are_down() -> None:
    found = made(transpose=True, columns=("event_us", "peak_bytes"))
    assert [table.title.split(":")[0] for table in found.tables] == ["event µs [p20–p80]", "peak MB"]
    assert [table.title.split(":")[0] for table in made(transpose=True).tables] == ["speedup vs eager"]


def test_kernels_are_a_table_of_their_own() -> None:
    assert [table.title.split(":")[0] for table in made(columns=("kernels",)).tables][1] == "Kernels"


def test_files_without_rows_make_no_table() -> None:
    assert document((), Options()) == Document((), ())


def test_all_rows_failed_is_a_table_that_says_so() -> None:
    found = made(source(profile({}, rows={"eager": {"status": "failed", "reason": "no GPU", "clocks": None}})))
    assert "no row was measured" in found.tables[0].notes
    assert "eager: failed: no GPU" in found.tables[0].notes
