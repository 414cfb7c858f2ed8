"""bench/two_cards.py: two workers measure what one measured, and a difference between them is seen."""

from __future__ import annotations

import json
import sys

import pytest
from msgspec.structs import replace
from support.bench import bench
from support.studies_made import host, measured, slots, workers, written

from mlpfusion.errors import UsageError
from mlpfusion.stages.sweep import folder
from mlpfusion.stages.sweep import study as studies
from mlpfusion.storage import results

__all__ = ["workers"]


@pytest.fixture(scope="module")
def two_cards():
    return bench("two_cards")


def test_a_study_is_measured_by_one_and_by_two(two_cards, tmp_path, workers, monkeypatch, capsys):
    monkeypatch.setattr(two_cards.slots, "found", lambda kind: slots(2))
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["", str(written(tmp_path)), "--folder", f"{tmp_path}/runs", "--out", str(out)])
    two_cards.main()
    assert sorted(measured(workers)) == [1, 1, 4, 4]
    found = json.loads(out.read_text())
    assert [(each["run"], each["workers"], each["cells"]) for each in found["runs"]] == [
        ("one", 1, {"finished": 2}),
        ("two", 2, {"finished": 2}),
    ]
    assert {row["ratio"] for row in found["rows"]} == {1.0}
    assert {each["worst"] for each in found["clocks"]["two"].values()} == {0.0}
    assert results.load_any(out).kind == "two-cards"
    assert "within 1%" in capsys.readouterr().out


def test_the_runs_may_be_measured_by_several_commands(two_cards, tmp_path, workers, monkeypatch, capsys):
    monkeypatch.setattr(two_cards.slots, "found", lambda kind: slots(2))
    command = ["", str(written(tmp_path)), "--folder", f"{tmp_path}/runs", "--out", f"{tmp_path}/found.json", "--runs"]
    seconds = []
    for name in ("two", "two", "one"):
        monkeypatch.setattr(sys, "argv", [*command, name])
        two_cards.main()
        seconds.append(two_cards.spent_s(tmp_path / "runs", "two"))
        assert (tmp_path / "found.json").exists() == (name == "one")
    assert sorted(measured(workers)) == [1, 1, 4, 4], "what is finished is not measured again"
    assert 0 < seconds[0] == seconds[1] == seconds[2]
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["run"] for each in found["runs"]] == ["one", "two"]
    assert found["runs"][1]["seconds"] == seconds[2]
    assert capsys.readouterr().out.count("nothing to compare yet") == 2


def test_a_cluster_is_measured_where_one_is_named(two_cards, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", str(written(tmp_path)), "--folder", str(tmp_path), "--runs", "ray"])
    with pytest.raises(SystemExit):
        two_cards.main()
    assert "--runs ray needs --ray" in capsys.readouterr().err


def test_a_difference_is_seen(two_cards, tmp_path, workers):
    asked = studies.read(written(tmp_path))
    for name in ("one", "two"):
        two_cards.measured(name, asked, host(), tmp_path)
    one, two = (two_cards.kept(name, asked, tmp_path) for name in ("one", "two"))
    path = two.folder / folder.CELLS / f"{two.study.cells[0].file}"
    found = results.load(path)
    row = found.rows[0]
    name = "event_us"
    clock = getattr(row.clocks, name)
    slower = replace(clock, median=clock.median * 1.5, p20=None, p80=None, rounds=(), ratio_to_eager=None)
    results.save(replace(found, rows=(replace(row, clocks=replace(row.clocks, **{name: slower})),)), path)
    ratios = [each["ratio"] for each in two_cards.rows(one, two) if each["clock"] == name]
    assert sorted(ratios) == pytest.approx([1.0, 1.5])
    assert two_cards.summary(two_cards.rows(one, two))[name]["worst"] == pytest.approx(0.5)


def test_two_cards_are_needed_unless_one_is_taken_twice(two_cards):
    assert two_cards.two_of(slots(1), same=True) == slots(1) * 2
    with pytest.raises(UsageError, match="two cards are needed"):
        two_cards.two_of(slots(1), same=False)
