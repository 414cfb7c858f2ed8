"""Comparisons of made profiles whose true differences are known, and of recorded ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.comparisons_made import EAGER_US, clock, compared, raced, row, saved, time, with_environment, with_spec
from support.paths import RESULTS
from support.profiles_made import EAGER

from mlpfusion.errors import UsageError
from mlpfusion.records.environment import Card
from mlpfusion.records.profile import Launches
from mlpfusion.spec import Workload
from mlpfusion.stages.compare import run

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.profile import Profile


# ---- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "word"), [(1.03, "slower"), (0.97, "faster"), (1.0, "same"), (1.002, "same"), (1.5, "slower")]
)
def test_five_processes_a_side_find_what_changed(tmp_path: Path, factor: float, word: str) -> None:
    found = compared(
        tmp_path, raced({"triton": 0.9, "fused": 0.7}), raced({"triton": 0.9 * factor, "fused": 0.7}, seed=1)
    )
    assert row(found).word == word
    assert row(found, "fused").word == "same"
    one = time(found)
    assert one.ratio == pytest.approx(1 / factor, rel=0.003)
    assert one.low < one.ratio < one.high
    assert (one.processes, one.source) == ((5, 5), "measured")
    assert row(found).is_regression == (word == "slower")


def test_what_the_machine_does_is_taken_out_and_said(tmp_path: Path) -> None:
    found = compared(
        tmp_path, raced({"triton": 0.9, "fused": 0.7}), raced({"triton": 0.9, "fused": 0.7}, machine=1.2, seed=1)
    )
    assert {each.word for each in found.rows} == {None, "same"}
    (group,) = found.groups
    assert group.control_times[0].ratio == pytest.approx(1 / 1.2, rel=0.01)
    assert group.notes[0] == (
        "eager itself changed by graph_us, and 2 of 2 other rows with it: the machine or its settings"
    )


def test_without_a_control_the_machine_is_in_it_and_that_is_said(tmp_path: Path) -> None:
    a, b = raced({"triton": 0.9}, spread=0.0), raced({"triton": 0.9}, spread=0.0, machine=1.2, seed=1)
    found = compared(tmp_path, a, b, control="none")
    assert row(found).word == "slower"
    assert row(found, "eager").word == "slower"
    assert any("no control" in note for note in found.notes)


def test_another_control(tmp_path: Path) -> None:
    a, b = raced({"triton": 0.9, "fused": 0.7}), raced({"triton": 0.99, "fused": 0.77}, seed=1)
    found = compared(tmp_path, a, b, control="fused")
    assert (row(found).word, row(found, "eager").word, row(found, "fused").word) == ("inconclusive",) * 2 + (None,)
    assert "fused itself changed by graph_us, and 1 of 2 other rows with it" in found.groups[0].notes[0]
    a, b = raced({"triton": 0.9, "fused": 0.7}), raced({"triton": 0.99, "fused": 0.7}, seed=1)
    found = compared(tmp_path, a, b, control="fused")
    assert (row(found).word, row(found, "eager").word) == ("slower", "same")


@pytest.mark.parametrize("control", ["liger", "nonsense"])
def test_a_control_without_times_is_refused(tmp_path: Path, control: str) -> None:
    with pytest.raises(
        UsageError, match=f"control '{control}' has no times in .*valid for --control: eager, triton, none"
    ):
        compared(tmp_path, raced({"triton": 0.9}), raced({"triton": 0.9}), control=control)


@pytest.mark.parametrize(("factor", "word"), [(1.02, "inconclusive"), (1.05, "slower"), (0.94, "faster")])
def test_one_process_decides_only_what_is_large(tmp_path: Path, factor: float, word: str) -> None:
    a, b = (raced({"triton": each}, processes=1, seed=seed) for seed, each in enumerate((0.9, 0.9 * factor)))
    one = time(compared(tmp_path, a, b))
    assert (one.word, one.reason, one.processes, one.source) == (word, "one process", (1, 1), "assumed")
    assert (one.needed is not None) == (word == "inconclusive")


def test_three_processes_are_said(tmp_path: Path) -> None:
    a, b = (raced({"triton": 0.9}, processes=each) for each in (5, 3))
    assert time(compared(tmp_path, a, b)).reason == "3 processes"


@pytest.mark.parametrize("swapped", [False, True])
def test_the_spread_of_the_file_that_has_one_is_used(tmp_path: Path, swapped: bool) -> None:
    a, b = raced({"triton": 0.9}, processes=6), raced({"triton": 0.92}, processes=1, seed=1)
    one = time(compared(tmp_path, b, a) if swapped else compared(tmp_path, a, b))
    assert one.source in ("measured", "of the other side")
    assert one.word == ("faster" if swapped else "slower")


HOST = [(0.0, 0.0, None), (0.09, 0.05, None), (0.2, 0.0, "background load 20% in the baseline")]
HOST += [(0.0, 0.1, "background load 10% in the candidate"), (None, 0.0, "not recorded in the baseline")]


@pytest.mark.parametrize("clock", ["event_us", "wall_us"])
@pytest.mark.parametrize(("first", "second", "reason"), HOST)
def test_the_hosts_clocks_decide_only_on_a_quiet_host(
    tmp_path: Path, clock: str, first: float | None, second: float | None, reason: str | None
) -> None:
    a = raced({"triton": 0.9}, clocks=(clock,), load=first)
    b = raced({"triton": 0.99}, clocks=(clock,), load=second, seed=1)
    found = compared(tmp_path, a, b)
    assert row(found).word == (None if reason else "slower")
    one = time(found, clock=clock)
    assert one.ratio == pytest.approx(0.9 / 0.99, rel=0.01)
    assert one.reason == (
        f"the host: {reason}"
        if reason and "recorded" not in reason
        else reason and f"the host: background load {reason}"
    )


@pytest.mark.parametrize("clock", ["graph_us", "kernel_us"])
def test_the_devices_clocks_decide_on_any_host(tmp_path: Path, clock: str) -> None:
    a, b = (
        raced({"triton": 0.9}, clocks=(clock,), load=0.9),
        raced({"triton": 0.99}, clocks=(clock,), load=None, seed=1),
    )
    assert row(compared(tmp_path, a, b)).word == "slower"


def test_rows_of_few_rounds_are_not_compared_and_that_is_said(tmp_path: Path) -> None:
    a, b = raced({"triton": 0.9}, rounds=1), raced({"triton": 2.0}, rounds=19)
    one = time(compared(tmp_path, a, b))
    assert (one.word, one.ratio) == (None, None)
    assert one.reason == "fewer than 20 rounds with a time of both"


def test_a_backend_absent_from_one_process_is_compared_by_the_others(tmp_path: Path) -> None:
    whole = raced({"triton": 0.9}, processes=6)
    rows = tuple(
        msgspec.structs.replace(each, clocks=_without_first(each.clocks)) if each.backend == "triton" else each
        for each in whole.rows
    )
    found = compared(tmp_path, msgspec.structs.replace(whole, rows=rows), raced({"triton": 0.9}, seed=1))
    assert time(found).processes == (5, 5)
    assert row(found).word == "same"


def _without_first(clocks: Any) -> Any:
    kept = clocks.graph_us.rounds[1:]
    made = clock([(), *kept])
    return msgspec.structs.replace(clocks, graph_us=made)


def test_holms_correction_is_over_the_rows_of_a_clock(tmp_path: Path) -> None:
    many = {f"row{place}": 1.0 for place in range(30)}
    base = raced({"triton": 0.9, **many}, spread=0.007, seed=3)
    slow = raced({"triton": 0.9 * 1.025, **many}, spread=0.007, seed=4)
    alone = [msgspec.structs.replace(each, rows=each.rows[:2]) for each in (base, slow)]
    assert row(compared(tmp_path, *alone)).word == "slower"
    assert row(compared(tmp_path, base, slow)).word == "inconclusive"
    assert time(compared(tmp_path, base, slow)).needed > 5


# ---- which rows ------------------------------------------------------------------------------------------------------


def test_rows_are_matched_by_tokens(tmp_path: Path) -> None:
    a, b = raced({"triton": 0.9}), raced({"triton": 0.9}, seed=1)
    flat = msgspec.structs.replace(b, workload=Workload(spec=b.workload.spec, batch=1, seq=8192))
    assert row(compared(tmp_path, a, flat)).word == "same"


def test_two_rows_of_one_file_are_compared_within_its_processes(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.json", raced({"triton": 0.9, "fused": 0.7}, spread=0.02))
    found = run.compare(f"{path}:triton", f"{path}:fused")
    assert [(each.baseline, each.candidate, each.word) for each in found.rows] == [("triton", "fused", "faster")]
    assert found.rows[0].times[0].ratio == pytest.approx(0.9 / 0.7, rel=0.05)
    assert found.groups[0].control is None


def test_a_row_against_another_of_another_file(tmp_path: Path) -> None:
    a = saved(tmp_path, "a.json", raced({"triton": 0.9}))
    b = saved(tmp_path, "b.json", raced({"fused": 0.7}, machine=1.3, seed=1))
    found = run.compare(f"{a}:triton", f"{b}:fused")
    assert found.rows[0].times[0].ratio == pytest.approx(0.9 / 0.7, rel=0.01)
    assert found.rows[0].word == "faster"


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 1024},
        {"intermediate_size": 4096},
        {"activation": "silu"},
        {"bias": True},
        {"batch": 32},
        {"seq": 1},
        {"mode": "training"},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("force", [False, True])
def test_nothing_crosses_a_workload(tmp_path: Path, change: dict[str, Any], force: bool) -> None:
    a = raced({"triton": 0.9})
    if next(iter(change)) in ("batch", "seq", "mode"):
        b = msgspec.structs.replace(a, workload=msgspec.structs.replace(a.workload, **change))
    else:
        b = with_spec(a, **change)
    with pytest.raises(UsageError, match="no workload is in both"):
        compared(tmp_path, a, b, force=force)


def test_rows_of_one_side_are_listed(tmp_path: Path) -> None:
    found = compared(tmp_path, raced({"triton": 0.9, "liger": 1.0}), raced({"triton": 0.9, "fused": 0.7}))
    assert (found.only_baseline, found.only_candidate) == (("liger",), ("fused",))


def test_without_a_common_row_it_is_refused(tmp_path: Path) -> None:
    a, b = raced({"triton": 0.9}), raced({"fused": 0.9})
    a, b = (msgspec.structs.replace(each, rows=each.rows[1:]) for each in (a, b))
    with pytest.raises(UsageError, match=r"no row is in both: '.*a.json' has triton; '.*b.json' has fused"):
        compared(tmp_path, a, b)


def test_a_baseline_in_which_nothing_ran_is_refused(tmp_path: Path) -> None:
    failed = {name: {"status": "failed", "reason": "no GPU", "clocks": None} for name in ("eager", "triton")}
    with pytest.raises(UsageError, match=r"no row of '.*a.json' ran.*eager failed: no GPU"):
        compared(tmp_path, raced({"triton": 0.9}, rows=failed), raced({"triton": 0.9}))


# ---- settings --------------------------------------------------------------------------------------------------------

SETTINGS = {
    "driver": "571.2",
    "torch": "2.12.0",
    "triton": "3.7.0",
    "cuda": "13.0",
    "float32_matmul_precision": "high",
    "flags": {"OMP_NUM_THREADS": "8"},
}


@pytest.mark.parametrize(("name", "value"), SETTINGS.items())
def test_what_was_measured_differently_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    a = raced({"triton": 0.9})
    b = with_environment(a, **{name: value})
    with pytest.raises(UsageError, match=r"were measured differently: .*; --force compares them anyway"):
        compared(tmp_path, a, b)
    found = compared(tmp_path, a, b, force=True)
    assert [each.weight for each in found.settings] == ["refused"]
    assert row(found).word == "same"


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        (Card(power_limit_w=700), Card(power_limit_w=500), True),
        (Card(locked_clocks=True), Card(locked_clocks=False), True),
        (Card(ecc=True), Card(ecc=False), True),
        (Card(mig=True), Card(mig=False), True),
        (Card(power_limit_w=700), Card(), False),
        (Card(power_limit_w=700), None, False),
        (Card(digest="a"), Card(digest="b"), False),
        (Card(persistence=True), Card(persistence=False), False),
    ],
)
def test_the_cards_settings(tmp_path: Path, first: Card | None, second: Card | None, refused: bool) -> None:
    a, b = (with_environment(raced({"triton": 0.9}), card=card) for card in (first, second))
    if refused:
        with pytest.raises(UsageError, match="measured differently"):
            compared(tmp_path, a, b)
    else:
        assert row(compared(tmp_path, a, b)).word == "same"


def test_another_card_and_another_dtype_are_refused(tmp_path: Path) -> None:
    a = raced({"triton": 0.9})
    other = msgspec.structs.replace(a, device=msgspec.structs.replace(a.device, name="NVIDIA H200"))
    with pytest.raises(UsageError, match=r"GPU NVIDIA H100 80GB HBM3 \(sm_90\) and NVIDIA H200 \(sm_90\)"):
        compared(tmp_path, a, other)
    half = with_spec(a, dtype="float16")
    with pytest.raises(UsageError, match="dtype bfloat16 and float16"):
        compared(tmp_path, a, half)
    assert row(compared(tmp_path, a, half, force=True)).word == "same"


def test_a_warm_cache_is_no_match_for_a_cold_one(tmp_path: Path) -> None:
    a = raced({"triton": 0.9})
    rows = tuple(
        msgspec.structs.replace(
            each,
            clocks=msgspec.structs.replace(
                each.clocks, graph_us=msgspec.structs.replace(each.clocks.graph_us, l2="warm")
            ),
        )
        for each in a.rows
    )
    with pytest.raises(UsageError, match="L2 of graph_us cold and warm"):
        compared(tmp_path, a, msgspec.structs.replace(a, rows=rows))


@pytest.mark.parametrize(
    "change", [{"python": "3.13.0"}, {"liger_kernel": "0.9.0"}, {"kernels": None}, {"distributions": {"quack": "2"}}]
)
def test_versions_that_are_the_question_are_never_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    a = with_environment(raced({"triton": 0.9}), distributions={"quack": "1"})
    found = compared(tmp_path, a, msgspec.structs.replace(with_environment(a, **change), mlpfusion="0.2.0"))
    assert {each.weight for each in found.settings} == {"question"}
    assert {each.name for each in found.settings} >= {"mlpfusion"}


# ---- facts -----------------------------------------------------------------------------------------------------------


def test_a_fact_that_is_worse_is_a_regression_without_any_time(tmp_path: Path) -> None:
    more = Launches(kernels=6, memcpys=0, memsets=2, runtime_launches={}, occupancy_queries=0, syncs=0)
    a, b = (
        raced({"triton": 0.9}),
        raced(
            {"triton": 0.5}, rows={"triton": {"launches": more, "kernels": (*EAGER.kernels, EAGER.kernels[-1])}}, seed=1
        ),
    )
    found = compared(tmp_path, a, b)
    assert row(found).word == "faster"
    assert row(found).is_regression
    found = compared(tmp_path, a, b, exact=True)
    assert row(found).times == ()
    assert row(found).is_regression


def test_exact_facts_are_compared_across_processors_but_not_across_versions_of_torch(tmp_path: Path) -> None:
    def on(cpu: str) -> Profile:
        made = raced({"triton": 0.9}, clocks=("wall_us",))
        return msgspec.structs.replace(made, device=msgspec.structs.replace(made.device, kind="cpu", name=cpu))

    with pytest.raises(UsageError, match="CPU one"):
        compared(tmp_path, on("one"), on("two"))
    assert compared(tmp_path, on("one"), on("two"), exact=True).rows
    with pytest.raises(UsageError, match="torch"):
        compared(tmp_path, on("one"), with_environment(on("two"), torch="2.12.0"), exact=True)


def test_a_backend_that_no_longer_runs_is_a_regression(tmp_path: Path) -> None:
    b = raced({"triton": 0.9}, rows={"triton": {"status": "failed", "reason": "it crashed", "clocks": None}})
    (fact,) = row(compared(tmp_path, raced({"triton": 0.9}), b)).facts[:1]
    assert (fact.name, fact.baseline, fact.candidate, fact.worse) == ("status", "ok", "failed: it crashed", True)


# ---- what is recorded ------------------------------------------------------------------------------------------------


def test_liger_of_two_recordings_is_not_called_faster() -> None:
    found = run.compare(str(RESULTS / "h200-article.json"), str(RESULTS / "h200-choose-article/inference-8192.json"))
    assert {each.word for each in found.rows} == {None, "inconclusive"}
    assert not any(each.is_regression for each in found.rows)
    graph, event = time(found, "liger"), time(found, "liger", "event_us")
    assert graph.candidate_us / graph.baseline_us == pytest.approx(1.009, abs=5e-4)
    assert event.candidate_us / event.baseline_us == pytest.approx(0.824, abs=5e-4)
    assert event.word is None
    assert event.reason == "the host: background load not recorded in the baseline"


def test_rows_of_a_folder_are_matched_by_workload() -> None:
    folder = RESULTS / "h200-choose-article"
    found = run.compare(str(folder), str(RESULTS / "h200-article.json"))
    assert [group.tokens for group in found.groups] == [8192]
    assert len(found.only_baseline) == 4 * 11 + 3


def test_the_geometric_mean(tmp_path: Path) -> None:
    a, b = raced({"triton": 1.0, "fused": 1.0}, spread=0), raced({"triton": 1.1, "fused": 1.2}, spread=0, seed=1)
    assert compared(tmp_path, a, b).geometric_means["graph_us"] == pytest.approx(1 / math.sqrt(1.1 * 1.2), rel=1e-3)
    assert EAGER_US == 240


@pytest.mark.parametrize("factor", [1.1, 0.9])
def test_a_control_that_changed_alone_makes_no_row_faster_or_slower(tmp_path: Path, factor: float) -> None:
    others = {"triton": 0.9, "fused": 0.7, "packed": 0.8}
    after = {name: each / factor for name, each in others.items()}
    found = compared(tmp_path, raced(others), raced(after, machine=factor, seed=1))
    assert {each.word for each in found.rows} == {None, "inconclusive"}
    (group,) = found.groups
    assert group.notes[0] == (
        "eager itself changed by graph_us, and 0 of 3 other rows with it: a ratio to it says little; --control names "
        "another row"
    )
    assert not any(each.is_regression for each in found.rows)


def test_one_row_alone_needs_others_that_are_the_same(tmp_path: Path) -> None:
    before = raced({"triton": 0.9, "fused": 0.7}, processes=1)
    after = raced({"triton": 0.99, "fused": 0.71}, processes=1, seed=1)
    found = compared(tmp_path, before, after)
    assert (row(found).word, row(found, "fused").word) == ("slower", "inconclusive")
    assert not any("alone" in note for note in found.groups[0].notes)


def test_clocks_with_another_cache_are_refused(tmp_path: Path) -> None:
    one = raced({"triton": 0.9, "fused": 0.7})
    rows = tuple(
        msgspec.structs.replace(
            each,
            clocks=msgspec.structs.replace(each.clocks, graph_us=msgspec.structs.replace(each.clocks.graph_us, l2=l2)),
        )
        for each, l2 in zip(one.rows, ("cold", "warm", "cold"), strict=True)
        if each.clocks is not None and each.clocks.graph_us is not None
    )
    cold = tuple(
        msgspec.structs.replace(
            each,
            clocks=msgspec.structs.replace(
                each.clocks, graph_us=msgspec.structs.replace(each.clocks.graph_us, l2="cold")
            ),
        )
        for each in one.rows
        if each.clocks is not None and each.clocks.graph_us is not None
    )
    with pytest.raises(UsageError, match="L2 of graph_us cold and warm"):
        compared(tmp_path, msgspec.structs.replace(one, rows=cold), msgspec.structs.replace(one, rows=rows))
