"""What a comparison leaves undecided or refuses: few processes of a host's clock, a control that is all there is."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.comparisons_made import clock, compared, raced, row, saved, time
from support.paths import RESULTS

from mlpfusion.errors import UsageError
from mlpfusion.records.clocks import Clocks
from mlpfusion.stages.compare import run
from mlpfusion.stages.compare.groups import CLOCKS
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.profile import Profile


def only(found: Profile, place: int) -> Profile:
    """The profile of one of its processes."""
    rows = []
    for each in found.rows:
        assert each.clocks is not None
        clocks = {
            name: clock([getattr(each.clocks, name).rounds[place]], l2=getattr(each.clocks, name).l2)
            for name in CLOCKS
            if getattr(each.clocks, name) is not None
        }
        rows.append(msgspec.structs.replace(each, clocks=Clocks(**clocks, neighbours=each.clocks.neighbours)))
    kept = {"rows": tuple(rows), "processes": (found.processes[place],), "itself": ()}
    return msgspec.structs.replace(found, **kept)


@pytest.mark.parametrize("name", ["event_us", "wall_us"])
def test_a_host_s_clock_of_few_processes_decides_nothing(tmp_path: Path, name: str) -> None:
    """One process in seven had another event_us by 30% on a quiet H200 (bench/results/h200-planted/plain.json)."""
    for few in (1, 4):
        a, b = (
            raced({"triton": 0.9 * each}, processes=processes, clocks=(name,), seed=seed)
            for seed, (each, processes) in enumerate(((1.0, few), (1.5, 5)))
        )
        one = time(compared(tmp_path, a, b), clock=name)
        assert (one.word, one.reason) == (None, "the host: fewer than 5 processes in one of the two")
        assert one.ratio == pytest.approx(1 / 1.5, rel=0.02)
    b = raced({"triton": 1.35}, clocks=(name,), seed=1)
    assert time(compared(tmp_path, raced({"triton": 0.9}, clocks=(name,)), b), clock=name).word == "slower"


def test_one_recorded_process_against_another_of_the_same_file_gets_no_verdict(tmp_path: Path) -> None:
    for name in ("h200-planted/plain", "h200-article-2", "h200-gemma-2b-2"):
        whole = results.load(RESULTS / f"{name}.json")
        control = whole.rows[0].backend
        parts = [saved(tmp_path, f"{place}.json", only(whole, place)) for place in range(len(whole.processes))]
        for a, b in itertools.pairwise(parts):
            found = run.compare(a, b, control=control, force=True)
            assert {each.word for each in found.rows} <= {None, "inconclusive"}, (name, a)


def test_the_correction_is_over_rows_and_clocks(tmp_path: Path) -> None:
    both = ("graph_us", "kernel_us")
    rows = {f"row{place}": 0.9 for place in range(4)}
    made = {"spread": 0.006, "processes": 8}
    changed = {**rows, "row0": 0.9 * 1.015}
    one = compared(tmp_path, raced(rows, **made), raced(changed, seed=1, **made))
    two = compared(tmp_path, raced(rows, clocks=both, **made), raced(changed, clocks=both, seed=1, **made))
    needed = [[each.needed for row in found.rows for each in row.times if each.needed] for found in (one, two)]
    assert all(needed)
    assert max(needed[1]) > max(needed[0])


def test_files_that_share_the_control_alone_are_refused(tmp_path: Path) -> None:
    a, b = raced({"triton": 0.9}), raced({"fused": 0.7})
    with pytest.raises(UsageError, match="no row but the control 'eager' is in both: eager, triton; eager, fused"):
        compared(tmp_path, a, b)
    assert [each.baseline for each in compared(tmp_path, a, b, exact=True).rows] == ["eager"]
    with pytest.raises(UsageError, match="'eager' is the control, to which the times of other rows are relative"):
        run.compare(f"{tmp_path}/a.json:eager", f"{tmp_path}/b.json:eager")
    assert row(compared(tmp_path, a, b, control="none"), "eager").word == "same"
    assert [each.word for each in compared(tmp_path, raced({}), raced({}, seed=1)).rows] == [None]


@pytest.mark.parametrize("failed", [("eager",), ("eager", "triton")])
def test_a_control_that_failed_is_a_regression(tmp_path: Path, failed: tuple[str, ...]) -> None:
    gone = {name: {"status": "failed", "reason": "no", "clocks": None} for name in failed}
    found = compared(tmp_path, raced({"triton": 0.9}), raced({"triton": 0.9}, rows=gone, seed=1))
    assert {each.baseline for each in found.rows if each.is_regression} == set(failed)
    assert row(found).word is None


def test_an_emulated_row_has_no_times(tmp_path: Path) -> None:
    emulated = {"triton": {"emulated": True, "tokens": 16}}
    found = compared(tmp_path, raced({"triton": 0.9}, rows=emulated), raced({"triton": 1.5}, rows=emulated, seed=1))
    assert row(found).times == ()
