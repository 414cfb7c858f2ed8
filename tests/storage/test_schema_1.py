"""A file of schema 1 is read into the record of schema 2, and what it cannot tell stays untold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import RESULTS

from mlpfusion.errors import UsageError
from mlpfusion.storage import results, schema_1

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORDED = RESULTS / "h200-article.json"


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert found["schema"] == 1
    return found


def eager_of(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["rows"][0]["clocks"]["event_us"]
    return found


def loaded(folder: Path, document: Any) -> Any:
    path = folder / "r.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return results.load(path)


def test_its_samples_are_the_rounds_of_one_process() -> None:
    found, document = results.load(RECORDED), recorded()
    assert found.schema == 2
    assert [each.started for each in found.processes] == [document["created"]]
    for row, old in zip(found.rows, document["rows"], strict=True):
        for name in ("wall_us", "event_us", "kernel_us", "graph_us") if row.clocks else ():
            clock = getattr(row.clocks, name)
            if clock is not None:
                assert clock.rounds == (tuple(old["clocks"][name]["samples"]),)
                assert clock.is_paired


def test_what_it_does_not_tell_of_its_process_has_a_reason() -> None:
    (process,) = results.load(RECORDED).processes
    absent = {name for name in process.__struct_fields__ if getattr(process, name) is None}
    assert absent == set(process.reasons)
    assert {"sm_clock_mhz", "power_w", "temperature_c", "throttle_reasons"} <= absent


def test_a_profile_that_was_not_raced_has_no_process(tmp_path: Path) -> None:
    document = recorded()
    for row in document["rows"]:
        if row["clocks"]:
            row["clocks"].update(wall_us=None, event_us=None, graph_us=None)
    assert loaded(tmp_path, document).processes == ()


@pytest.mark.parametrize("lost", [1, 7])
def test_dropped_rounds_leave_its_times_unpaired(tmp_path: Path, lost: int) -> None:
    document = recorded()
    clock = eager_of(document)
    del clock["samples"][:lost]
    middle = sorted(clock["samples"])
    median = (middle[(len(middle) - 1) // 2] + middle[len(middle) // 2]) / 2
    clock.update(n=len(middle), dropped=lost, median=median)
    found = loaded(tmp_path, document).rows[0].clocks
    assert not found.event_us.is_paired
    assert found.wall_us.is_paired
    assert len(found.event_us.samples) == len(middle)


def test_a_summary_without_samples_has_no_rounds(tmp_path: Path) -> None:
    document = recorded()
    eager_of(document)["samples"] = []
    clock = loaded(tmp_path, document).rows[0].clocks.event_us
    assert (clock.rounds, clock.samples, clock.is_paired) == ((), (), False)


def test_it_is_written_as_schema_2_and_read_as_it_was(tmp_path: Path) -> None:
    found = results.load(RECORDED)
    results.save(found, tmp_path / "new.json")
    assert json.loads((tmp_path / "new.json").read_text())["schema"] == 2
    assert results.load(tmp_path / "new.json") == found


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda clock: clock["samples"].__setitem__(3, "NaN"), "`$.rows[0].clocks.event_us.samples[3]`"),
        (lambda clock: clock["samples"].__setitem__(0, -1.0), "`$.rows[0].clocks.event_us.samples[0]`"),
        (lambda clock: clock.update(samples=7), "`$.rows[0].clocks.event_us.samples`"),
        (lambda clock: clock.update(samples=[[1.0]]), "`$.rows[0].clocks.event_us.samples[0]`"),
        (lambda clock: clock["samples"].pop(), "99 rounds where another clock has 100 - at `$.rows[0].clocks.event_us"),
        (lambda clock: clock.update(median=clock["p20"]), "where that of its rounds is"),
    ],
)
def test_damage_is_named_with_the_place_that_the_file_has(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], says: str
) -> None:
    document = recorded()
    change(eager_of(document))
    with pytest.raises(UsageError) as raised:
        loaded(tmp_path, document)
    assert says in str(raised.value)


@pytest.mark.parametrize("rows", [None, 3, "x", [None], [{}], [{"clocks": 3}], [{"clocks": {"event_us": {}}}], {}])
def test_what_is_damaged_stays_as_it_is_for_the_reader_to_refuse(rows: Any) -> None:
    document = {"schema": 1, "kind": "profile", "rows": rows}
    assert schema_1.upgraded(document)["rows"] == rows
    assert document == {"schema": 1, "kind": "profile", "rows": rows}
