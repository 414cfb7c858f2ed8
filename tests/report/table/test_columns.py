"""Columns by name and by set."""

from __future__ import annotations

import pytest
from support.races_made import foresight, race, source

from mlpfusion.errors import UsageError
from mlpfusion.report.table.columns import NAMES, SETS, check, clock_of_ratios, data, every, picked, text
from mlpfusion.stages.tabulate.races import of_sources
from mlpfusion.units import ABSENT


def test_every_set_is_of_columns_that_are_there() -> None:
    keys = {column.key for column in every("event_us", "eager")} | {"clock"}
    assert {key for names in SETS.values() for key in names} <= keys
    assert set(SETS) == {"summary", "speed", "host", "memory", "kernels", "traffic", "accuracy", "training"}


def test_every_column_can_be_named_singly() -> None:
    assert {column.key for column in every("event_us", "eager")} == set(NAMES)


def test_a_set_leaves_out_what_no_row_has_and_a_named_column_stays() -> None:
    races = [race({"fused": 0.5})]
    assert [each.key for each in picked(("speed",), races, "event_us", "eager")] == ["event_us", "speedup"]
    assert [each.key for each in picked(("wall_us",), races, "event_us", "eager")] == ["wall_us"]


def test_columns_come_in_the_order_of_their_names_and_once() -> None:
    found = picked(("memory", "event_us", "training"), [race({"fused": 0.5})], "event_us", "eager")
    assert [each.key for each in found] == ["peak_bytes", "event_us", "speedup", "error"]


def test_without_names_the_summary_is_shown() -> None:
    races = [race({"fused": 0.5})]
    found = [each.key for each in picked(None, races, "event_us", "eager")]
    assert found == [each.key for each in picked(("summary",), races, "event_us", "eager")]
    assert found == ["event_us", "speedup", "kernels", "error", "peak_bytes"]


def test_the_old_name_of_the_speedup_still_says_what_it_did() -> None:
    assert check(["speedup_vs_eager", "event_us"]) == ["speedup", "event_us"]
    with pytest.raises(UsageError, match="relative to eager; with --baseline 'packed' it is 'speedup'"):
        check(["speedup_vs_eager"], "packed")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["speeds"], "unknown column 'speeds'; valid: summary, speed, host"),
        (["event_us", "event_us"], "column 'event_us' is given twice"),
        (["speedup", "speedup_vs_eager"], "column 'speedup' is given twice"),
        (["vs_eager"], "column 'vs_eager' is now"),
        ([""], "unknown column ''"),
    ],
)
def test_a_wrong_column_is_named(names: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check(names)


def test_the_clock_is_the_first_that_has_ratios() -> None:
    assert clock_of_ratios([race({"fused": 0.5}, clocks=("graph_us",))]) == "graph_us"
    assert clock_of_ratios([race({}, clocks=("wall_us",))]) == "wall_us"


def test_a_predicted_time_is_shown_with_its_interval() -> None:
    (found,) = of_sources([source(foresight())])
    (column,) = (each for each in every("event_us", "eager") if each.key == "predicted_us")
    assert [text(column, each) for each in found.entries] == ["100 [90–110]", "150 [140–165]", ABSENT]
    assert data(column, found.entries[0]) == {
        "predicted_us": 100.0,
        "predicted_us_low": 90.0,
        "predicted_us_high": 110.0,
    }
