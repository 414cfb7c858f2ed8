"""Folders of one study become one: each cell once with all of its processes; what does not go together is refused."""

from __future__ import annotations

import shutil

import pytest
from msgspec.structs import replace
from support.choices_made import around, row
from support.studies_made import SMALL, contents, host, measured, read, result, workers

from mlpfusion.errors import UsageError
from mlpfusion.records.environment import Process
from mlpfusion.stages.sweep import cells, folder, run
from mlpfusion.stages.sweep.merge import merge, together
from mlpfusion.storage import results

__all__ = ["workers"]
MANY = SMALL.replace("[1, 4]", "[1, 2, 3, 4, 5, 6]")


def sharded(tmp_path, parts, text=MANY):
    asked = read(tmp_path, text)
    found = []
    for number in range(1, parts + 1):
        part = cells.Shard(number, parts)
        found.append(str(run.folder_of(asked, tmp_path / "parts", part)))
        run.sweep(asked, host(), out=run.folder_of(asked, tmp_path / "parts", part), shard=part)
    return found


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_shards_are_a_whole_run(tmp_path, workers, parts):
    merged = merge(sharded(tmp_path, parts), tmp_path / "merged")
    whole = run.sweep(read(tmp_path, MANY), host(), out=tmp_path / "whole")
    assert contents(tmp_path / "merged") == contents(tmp_path / "whole")
    assert merged.definition == whole.definition
    assert list(merged.nodes) == ["node 1"]
    assert len(measured(workers)) == 12
    run.sweep(read(tmp_path, MANY), host(), out=tmp_path / "merged")  # nothing is left to measure
    assert len(measured(workers)) == 12


def test_merging_again_and_into_one_of_them_changes_nothing(tmp_path, workers):
    parts = sharded(tmp_path, 2)
    merge(parts, tmp_path / "merged")
    before = {path: path.read_bytes() for path in sorted((tmp_path / "merged").rglob("*.json"))}
    merge(list(reversed(parts)), tmp_path / "merged")
    merge([str(tmp_path / "merged"), *parts], tmp_path / "merged")
    assert {path: path.read_bytes() for path in sorted((tmp_path / "merged").rglob("*.json"))} == before


def timed(tokens, started, middle=100.0):
    return result(tokens, rows=(row("eager", around(middle)),), processes=(Process(started=started),))


def test_a_cell_measured_twice_has_the_processes_of_both(tmp_path, workers):
    one = tmp_path / "one"
    made = run.sweep(read(tmp_path, SMALL), host(), out=one)
    shutil.copytree(one, tmp_path / "two")
    path = tmp_path / "two" / "cells" / made.cells[0].file
    results.save(replace(timed(1, "2027-01-01T00:00:00+00:00", 120.0), host_clocks="exclusive"), path)
    merged = merge([str(one), str(tmp_path / "two")], tmp_path / "merged")
    found = results.load(tmp_path / "merged" / "cells" / made.cells[0].file)
    assert [each.started[:4] for each in found.processes] == ["2026", "2027"]
    assert found.rows[0].clocks.wall_us.rounds == (around(100), around(120.0))
    assert found.rows[0].clocks.wall_us.n == 50
    again = merge([str(tmp_path / "two"), str(tmp_path / "merged")], tmp_path / "merged")
    assert len(results.load(tmp_path / "merged" / "cells" / made.cells[0].file).processes) == 2
    assert [each.state for each in again.cells] == [each.state for each in merged.cells]


A = timed(1, "2026-01-01T00:00:00+00:00")
OTHER = {
    "status of eager": replace(A, rows=(replace(A.rows[0], status="failed", reason="it crashed"),)),
    "backends": replace(A, rows=(replace(A.rows[0], backend="packed"),)),
    "versions": replace(A, environment=replace(A.environment, torch="1.0")),
    "device": replace(A, device=replace(A.device, name="another")),
    "host clocks": replace(A, host_clocks="shared"),
    "workload": result(2),
    "versions of eager": replace(A, rows=(replace(A.rows[0], distributions={"x": "1"}),)),
    "clocks of eager": replace(A, rows=(replace(A.rows[0], clocks=None),)),
}


@pytest.mark.parametrize("what", OTHER)
def test_what_differs_in_more_than_times_is_refused_with_both_files(what):
    with pytest.raises(UsageError, match="are of one cell and differ in more than times: ") as caught:
        together(A, OTHER[what], "a.json", "b.json")
    assert what in str(caught.value)
    assert str(caught.value).startswith("'a.json' and 'b.json'")


def test_more_processes_than_can_be_compared_are_refused():
    found = A
    for year in range(2027, 2056):
        found = together(found, timed(1, f"{year}-01-01T00:00:00+00:00"), "a", "b")
    assert len(found.processes) == 30
    with pytest.raises(UsageError, match="31 processes together; at most 30"):
        together(found, timed(1, "2056-01-01T00:00:00+00:00"), "a", "b")


def test_folders_of_nothing_or_of_different_studies_are_refused(tmp_path, workers):
    parts = sharded(tmp_path, 1)
    with pytest.raises(UsageError, match="is no study's folder: it holds no study"):
        merge([str(tmp_path)], tmp_path / "merged")
    run.sweep(read(tmp_path, SMALL), host(), out=tmp_path / "other")
    with pytest.raises(UsageError, match="are of different studies, 'small' and 'small'"):
        merge([*parts, str(tmp_path / "other")], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_damaged_cell_is_refused_by_name(tmp_path, workers):
    parts = sharded(tmp_path, 1, SMALL)
    path = next((tmp_path / "parts").rglob("cells/*.json"))
    path.write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match=path.name):
        merge(parts, tmp_path / "merged")


def test_a_finished_cell_wins_over_one_that_is_not(tmp_path, workers):
    one = run.sweep(read(tmp_path, SMALL), host(), out=tmp_path / "one")
    waiting = replace(
        one, cells=tuple(replace(each, state="waiting", file=None, stamp=None, outcome=None) for each in one.cells)
    )
    (tmp_path / "two").mkdir()
    results.save(waiting, tmp_path / "two" / folder.STUDY_NAME)
    for order in (["one", "two"], ["two", "one"]):
        merged = merge([str(tmp_path / name) for name in order], tmp_path / "-".join(order))
        assert {each.state for each in merged.cells} == {"finished"}
        assert {len(each.attempts) for each in merged.cells} == {1}
