"""A file against itself: every split of its processes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.command import refused, run
from support.comparisons_made import raced, saved
from support.paths import RESULTS

from mlpfusion.errors import UsageError
from mlpfusion.stages.compare import self_test
from mlpfusion.stages.compare.self_test import compare_self
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("processes", "splits"), [(2, 1), (3, 3), (5, 10), (10, 126)])
def test_every_split_is_made_once(tmp_path: Path, processes: int, splits: int) -> None:
    found = compare_self(saved(tmp_path, "a.json", raced({"triton": 0.9}, processes=processes)))
    (row,) = found.rows
    assert (row.splits, row.processes, found.sampled) == (splits, processes, False)
    assert splits == math.comb(processes, processes // 2) / (1 if processes % 2 else 2)


def test_a_quiet_machine_raises_no_alarm_and_its_spread_is_told(tmp_path: Path) -> None:
    found = compare_self(saved(tmp_path, "a.json", raced({"triton": 0.9, "fused": 0.7}, processes=10, spread=0.004)))
    assert found.alarms == 0
    assert all(0.002 < row.spread < 0.008 for row in found.rows)
    assert found.notes == ()


def test_processes_of_two_kinds_are_noticed(tmp_path: Path) -> None:
    made = raced({"triton": 0.9}, processes=12)
    clocks = made.rows[1].clocks
    graph = clocks.graph_us
    slow = tuple(tuple(1.1 * time for time in each) for each in graph.rounds[:6])
    rounds = (*slow, *graph.rounds[6:])
    values = sorted(time for each in rounds for time in each)
    middle = (values[359] + values[360]) / 2
    graph = msgspec.structs.replace(graph, rounds=rounds, median=middle, p20=None, p80=None)
    row = msgspec.structs.replace(made.rows[1], clocks=msgspec.structs.replace(clocks, graph_us=graph))
    found = compare_self(saved(tmp_path, "a.json", msgspec.structs.replace(made, rows=(made.rows[0], row))))
    assert 1 <= found.alarms < 50  # of 462: the split into the two kinds, and its neighbours
    assert found.rows[0].largest > 0.09


def test_too_many_splits_are_drawn_and_always_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "MOST_SPLITS", 50)
    path = saved(tmp_path, "a.json", raced({"triton": 0.9}, processes=12))
    found = compare_self(path)
    assert (found.rows[0].splits, found.sampled) == (50, True)
    assert compare_self(path) == found


def test_one_process_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a.json' has no two processes with 20 rounds"):
        compare_self(saved(tmp_path, "a.json", raced({"triton": 0.9}, processes=1)))


def test_a_row_and_a_control_of_its_own(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.json", raced({"triton": 0.9, "fused": 0.7}))
    assert [row.backend for row in compare_self(f"{path}:fused").rows] == ["fused"]
    assert [row.backend for row in compare_self(path, control="fused").rows] == ["eager", "triton"]
    assert len(compare_self(path, control="none").rows) == 3


def test_what_a_published_file_carries_is_what_the_command_finds(tmp_path: Path) -> None:
    made = raced({"triton": 0.9, "fused": 0.7}, processes=5, spread=0.004)
    rows = self_test.of_profile(made)
    assert rows == compare_self(saved(tmp_path, "a.json", made)).rows
    assert {row.backend for row in rows} == {"triton", "fused"}
    assert self_test.of_profile(raced({"triton": 0.9}, processes=1)) == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"alarms": 3}, "3 where its processes give 0 - at `$.itself[0].alarms`"),
        ({"splits": 11}, "11 where its processes give 10 - at `$.itself[0].splits`"),
        ({"processes": 4}, "4 where its processes give 5 - at `$.itself[0].processes`"),
        ({"spread": 1e-9}, "`$.itself[0].spread`"),
        ({"largest": 0.0}, "`$.itself[0].largest`"),
        ({"clock": "wall_us"}, "no such row - at `$.itself[0].processes`"),
    ],
)
def test_what_a_file_says_of_itself_is_what_its_processes_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], says: str
) -> None:
    made = raced({"triton": 0.9})
    whole = msgspec.structs.replace(made, itself=self_test.of_profile(made))
    self_test.check(whole, "a.json")
    self_test.check(made, "a.json")
    edited = msgspec.structs.replace(whole, itself=(msgspec.structs.replace(whole.itself[0], **change),))
    with pytest.raises(UsageError) as raised:
        self_test.check(edited, "a.json")
    assert says in str(raised.value)
    path, other = saved(tmp_path, "a.json", edited), saved(tmp_path, "b.json", raced({"triton": 0.9}, seed=1))
    for given in (
        ("table", path), ("report", path, "-o", str(tmp_path / "r.html")), ("compare", path, other),
        ("plot", path, "--figure", "ratios", "-o", str(tmp_path / "r.svg")),
        ("compare", f"{other}:triton", f"{path}:triton"),
    ):  # fmt: skip
        assert says in refused(capsys, *given)
    assert not list(tmp_path.glob("r.*"))


def test_alarms_that_another_version_raised_are_its_own(tmp_path: Path) -> None:
    made = raced({"triton": 0.9})
    rows = self_test.of_profile(made)
    edited = msgspec.structs.replace(made, itself=(msgspec.structs.replace(rows[0], alarms=3),))
    with pytest.raises(UsageError, match="alarms"):
        self_test.check(edited, "a.json")
    self_test.check(msgspec.structs.replace(edited, mlpfusion="0.0.1"), "a.json")
    spread = msgspec.structs.replace(edited, itself=(msgspec.structs.replace(rows[0], spread=1.0),))
    with pytest.raises(UsageError, match="spread"):
        self_test.check(msgspec.structs.replace(spread, mlpfusion="0.0.1"), "a.json")


def test_the_recorded_files_say_of_themselves_what_is_so() -> None:
    found = results.load(RESULTS / "h200-gemma-2b-1.json")
    assert found.itself
    self_test.check(found, "a.json")


def test_a_damaged_file_of_a_folder_is_refused_where_it_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = raced({"triton": 0.9})
    whole = msgspec.structs.replace(made, itself=self_test.of_profile(made))
    edited = msgspec.structs.replace(whole, itself=(msgspec.structs.replace(whole.itself[0], alarms=9),))
    (tmp_path / "folder").mkdir()
    saved(tmp_path / "folder", "a.json", edited)
    other = saved(tmp_path, "b.json", raced({"triton": 0.9}, seed=1))
    assert "`$.itself[0].alarms`" in refused(capsys, "compare", str(tmp_path / "folder"), other)
    saved(tmp_path / "folder", "a.json", whole)
    assert run(capsys, "compare", str(tmp_path / "folder"), other)[0] == 0


@pytest.mark.parametrize(("processes", "judged"), [(5, False), (9, False), (10, True)])
def test_a_host_s_clock_is_judged_by_halves_of_enough_processes(tmp_path: Path, processes: int, judged: bool) -> None:
    made = raced({"triton": 0.9}, processes=processes, clocks=("graph_us", "event_us"))
    rows = {row.clock: row for row in compare_self(saved(tmp_path, "a.json", made)).rows}
    assert rows["graph_us"].splits > 0
    assert (rows["event_us"].splits > 0) == judged
    assert rows["event_us"].spread > 0
