"""bench/fused.py: what samples say of a target, what there is time for, and a run on a CPU with a peer that fails."""

from __future__ import annotations

import argparse
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bench import bench
from support.paths import RESULTS, ROOT

from mlpfusion import backend
from mlpfusion.device import Device, detect
from mlpfusion.environment.machine import collect
from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

SCRIPT = ROOT / "bench" / "fused.py"
BUDGET_S = 520  # the default; nine minutes are 540


@pytest.fixture(scope="module")
def rows() -> ModuleType:
    return bench("fused_rows")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return bench("fused")


def peer(rows: ModuleType, name: str, median: float | None, **changes: Any) -> Any:
    """A peer whose graph and host clocks spread by a percent, alike in all rounds."""
    series = () if median is None else tuple(median * (1 + (place % 3 - 1) / 100) for place in range(30))
    fields = {"status": "ok", "samples": {"graph_us": series, "host_us": series, "event_us": series}, **changes}
    return rows.Peer(name=name, **fields)


def row(rows: ModuleType, *peers: Any, key: str = "8192x768x3072") -> Any:
    planned = next(one for one in rows.ROWS if one.key == key)
    return rows.Row(key=key, workload=planned.workload, created="2026-01-01", seconds=1.0, peers=peers)


def target(rows: ModuleType, **changes: Any) -> Any:
    return rows.Target(**{"says": "it", "subject": "fused", **changes})


# ---- what is planned -------------------------------------------------------------------------------------------------


def test_rows_have_names_of_their_own_and_name_peers_that_exist(rows: ModuleType) -> None:
    assert len({planned.key for planned in rows.ROWS}) == len(rows.ROWS)
    peers = {rows.PRODUCTS, *rows.PEERS, *rows.OURS}
    for planned in rows.ROWS:
        assert peers >= {*planned.wanted, *planned.optional}
        assert not {*planned.wanted} & {*planned.optional}
        for one in planned.targets:
            assert peers >= {one.subject, *one.against}
            assert (one.at_most is None) == bool(one.against) == (one.at_least is not None)


def test_what_is_wanted_is_backends_or_peers_of_the_bench(rows: ModuleType) -> None:
    own = {rows.PRODUCTS, rows.FREEZING, rows.OWN_DOWN, rows.LIGER_MLP}
    assert {*rows.PEERS} - own <= {*backend.names()}


def test_all_that_is_wanted_fits_into_the_time(rows: ModuleType) -> None:
    needed = sum(
        rows.race_s(planned, 40) + sum(rows.setup_s(planned, one) for one in planned.wanted) for planned in rows.ROWS
    )
    assert needed < BUDGET_S


def test_peers_that_nobody_waits_for_get_only_time_that_is_left(rows: ModuleType) -> None:
    first, *later = rows.ROWS
    reserved = sum(
        rows.race_s(planned, 40) + sum(rows.setup_s(planned, one) for one in planned.wanted) for planned in later
    )
    enough = reserved + rows.race_s(first, 40) + rows.setup_s(first, rows.FREEZING)
    assert rows.worth_it(first, rows.FREEZING, tuple(later), enough + 1, 40)
    assert not rows.worth_it(first, rows.FREEZING, tuple(later), enough - 1, 40)
    assert rows.worth_it(first, "quack", tuple(later), enough - 1, 40)
    assert not rows.worth_it(first, "quack", tuple(later), rows.setup_s(first, "quack"), 40)


# ---- what samples say ------------------------------------------------------------------------------------------------


@given(st.floats(10, 1e4), st.floats(10, 1e4), st.floats(0.5, 2))
def test_a_ratio_is_compared_with_its_bound(rows: ModuleType, mine: float, theirs: float, bound: float) -> None:
    given_row = row(rows, peer(rows, "fused", mine), peer(rows, "limit", theirs))
    found = rows.judge(given_row, target(rows, against=("limit",), at_least=bound))
    assert found.reached == pytest.approx(theirs / mine)
    assert found.verdict == ("reached" if found.reached >= bound else "missed")


def test_the_best_of_several_peers_is_what_counts(rows: ModuleType) -> None:
    peers = [peer(rows, "fused", 100.0), peer(rows, "compile", 140.0), peer(rows, "liger", 120.0)]
    found = rows.judge(row(rows, *peers), target(rows, against=("compile", "liger", "triton"), at_least=1.3))
    assert (found.baseline, found.verdict) == ("liger", "missed")
    assert found.reached == pytest.approx(1.2)


def test_only_noise_excuses_a_slower_call(rows: ModuleType) -> None:
    rival = peer(rows, "quack", 100.0)
    wild = tuple(100.5 + 3 * (place % 5 - 2) for place in range(30))
    steady = tuple(100.5 * value / 100 for value in rival.samples["graph_us"])
    for series, verdict in ((wild, "reached"), (steady, "missed")):
        mine = peer(rows, "fused", None, samples={"graph_us": series})
        goal = target(rows, against=("quack",), at_least=1.0, noise=True)
        assert rows.judge(row(rows, mine, rival), goal).verdict == verdict


def test_bytes_and_plain_figures_are_judged_too(rows: ModuleType) -> None:
    peers = [peer(rows, "fused", 9.0, saved_bytes=69), peer(rows, "liger", 9.0, saved_bytes=100)]
    saved = rows.judge(row(rows, *peers), target(rows, against=("liger",), at_least=1 / 0.70, clock=rows.SAVED))
    assert (saved.verdict, saved.reached, saved.low) == ("reached", 100 / 69, None)
    plain = rows.judge(row(rows, *peers), target(rows, at_most=8.0, clock="host_us"))
    assert (plain.verdict, plain.baseline) == ("missed", None)
    assert plain.reached == pytest.approx(9.0)


@pytest.mark.parametrize("lacking", ["fused", "limit"])
def test_what_was_not_measured_is_no_verdict(rows: ModuleType, lacking: str) -> None:
    goal = target(rows, against=("limit",), at_least=1.0)
    names = [name for name in ("fused", "limit") if name != lacking]
    gone = [rows.Peer(name=lacking, status="failed", reason="it broke")]
    for peers in ([], gone):
        found = rows.judge(row(rows, *(peer(rows, name, 5.0) for name in names), *peers), goal)
        assert (found.verdict, found.reached) == ("not measured", None)


# ---- text and file ---------------------------------------------------------------------------------------------------


def result(rows: ModuleType, *made: Any, name: str = "NVIDIA H200") -> Any:
    here = Device(kind="cuda", name=name, runtime="cuda", capability=(9, 0))
    return rows.Result(
        device=here, environment=collect(detect("cpu"), {}), packages={"quack-kernels": "0.6.5"}, rows=made
    )


def full(rows: ModuleType) -> Any:
    return row(
        rows,
        peer(rows, "fused", 160.0, error=1.0, setup_s=2.5),
        peer(rows, "limit", 169.0, reasons={"graph_us": "capture failed"}),
        peer(rows, "compile", 224.0),
        rows.Peer(name="quack", status="unavailable", reason="not installed"),
    )


@pytest.mark.parametrize("markdown", [False, True])
def test_the_page_has_every_peer_and_every_target(rows: ModuleType, markdown: bool) -> None:
    page = bench("fused_text").page(result(rows, full(rows)), markdown=markdown)
    assert "NVIDIA H200" in page
    assert "quack-kernels 0.6.5" in page
    assert "- quack: unavailable: not installed" in page
    assert "- no graph_us: capture failed (cuBLAS products alone)" in page
    lines = [" ".join(line.replace("|", " ").split()) for line in page.splitlines()]
    assert any(line.startswith("fused 160.0 [158.4–161.6]") and "1.056x" in line for line in lines)
    assert any(
        "near the products alone >= 0.9709x 1.056x [1.056–1.056] cuBLAS products alone reached" in line
        for line in lines
    )
    assert any("faster than compile >= 1.45x 1.400x [1.400–1.400] compile missed" in line for line in lines)
    assert any("no slower than quack >= 1x – not measured" in line for line in lines)
    assert ("|---" in page) == markdown
    assert "fastmath" not in page
    tanh = row(rows, peer(rows, "fused", 160.0), peer(rows, "quack", 157.0))
    assert "fastmath" in bench("fused_text").row_text(tanh, markdown=markdown)


def test_the_summary_has_a_line_for_each_row_that_was_measured(rows: ModuleType) -> None:
    training = row(rows, peer(rows, "eager", 600.0), peer(rows, "fused", None), key="8192x768x3072-training")
    made = bench("fused_text").summary(result(rows, full(rows), training))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in made.splitlines()]
    assert len(cells) == 3
    assert cells[0][2:] == [
        "fused µs", "cuBLAS products alone µs", "eager µs", "over compile", "over quack", "over the best baseline",
    ]  # fmt: skip
    assert cells[2] == [
        "8192 × 768 × 3072", "forward, gelu_tanh", "160.0 [158.4–161.6]", "169.0 [167.3–170.7]", "–",
        "1.400x [1.400–1.400]", "–", "compile, 1.400x [1.400–1.400]",
    ]  # fmt: skip


def test_the_page_shows_what_was_recorded(rows: ModuleType) -> None:
    recorded = (RESULTS / "h200-fused.json").read_bytes()
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    shown = page.split("<!-- fused -->", 1)[1].split("<!-- /fused -->", 1)[0]
    assert shown.strip() == bench("fused_text").summary(msgspec.json.decode(recorded, type=rows.Result))


def test_the_file_comes_back_as_it_was(rows: ModuleType, script: ModuleType) -> None:
    made = result(rows, full(rows))
    text = script.encode(made)
    assert msgspec.json.decode(text, type=rows.Result) == made
    assert max(map(len, text.splitlines())) < 2000


def test_a_newer_row_replaces_an_older_one_in_the_order_of_the_plan(rows: ModuleType, script: ModuleType) -> None:
    second, first = (row(rows, key=planned.key) for planned in (rows.ROWS[1], rows.ROWS[0]))
    both = script.merged(script.merged(result(rows), second), first)
    assert [one.key for one in both.rows] == [rows.ROWS[0].key, rows.ROWS[1].key]
    newer = msgspec.structs.replace(first, seconds=9.0)
    assert [one.seconds for one in script.merged(both, newer).rows] == [9.0, 1.0]


def test_a_file_of_another_card_or_kind_is_not_written_over(
    rows: ModuleType, script: ModuleType, tmp_path: Path
) -> None:
    out = tmp_path / "h200-fused.json"
    assert script.earlier(out, result(rows)).rows == ()
    out.write_text(script.encode(result(rows, full(rows))))
    assert script.earlier(out, result(rows)).rows == (full(rows),)
    kept = msgspec.structs.replace(result(rows, full(rows)), packages={"quack-kernels": "0.6.5"})
    out.write_text(script.encode(kept))
    assert script.earlier(out, result(rows)).packages == {"quack-kernels": "0.6.5"}
    with pytest.raises(UsageError, match=r"measured with \('NVIDIA H200'.*here is \('NVIDIA H100"):
        script.earlier(out, result(rows, name="NVIDIA H100 80GB HBM3"))
    out.write_text('{"kind": "profile"}')
    with pytest.raises(UsageError, match="no result of this script"):
        script.earlier(out, result(rows))


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("AMD EPYC", "amd"),
    ],
)
def test_a_card_has_a_short_name(script: ModuleType, name: str, short: str) -> None:
    assert script.card(name) == short


# ---- runs ------------------------------------------------------------------------------------------------------------


def test_a_peer_that_fails_leaves_its_reason_and_the_others_race(
    rows: ModuleType, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers, calls = bench("fused_peers"), [0]
    bind = peers.bind

    def sometimes(name: str, case: Any, here: Any) -> Any:
        forward = bind("eager", case, here)

        def broken(x: Any) -> Any:
            calls[0] += 1
            if calls[0] > 4:  # in the race, not before it
                raise RuntimeError("it broke\nlater")
            return forward(x)

        if name == "triton":
            raise RuntimeError("it broke at once")
        return {"packed": broken, "compile": lambda x: 2 * forward(x)}.get(name, forward)

    monkeypatch.setattr(peers, "bind", sometimes)
    planned = script.tiny(next(one for one in rows.ROWS if one.key == "8192x768x3072-training"))
    here, out = detect("cpu"), tmp_path / "cpu-fused.json"
    fresh = rows.Result(device=here, environment=collect(here, {}), packages={}, rows=())
    options = argparse.Namespace(budget_s=float("inf"), rounds=20)
    only = frozenset((rows.PRODUCTS, "eager", "triton", "packed", "compile"))
    found = script.run([planned], fresh, out, only=only, options=options)
    assert msgspec.json.decode(out.read_bytes(), type=rows.Result) == found
    by_name = {one.name: one for one in found.rows[0].peers}
    assert {name: one.status for name, one in by_name.items()} == {
        rows.PRODUCTS: "ok",
        "eager": "ok",
        "triton": "failed",
        "packed": "failed",
        "compile": "failed",
    }
    assert by_name["triton"].reason == "RuntimeError: it broke at once"
    assert by_name["packed"].reason == "in the race: RuntimeError: it broke"
    assert by_name["compile"].reason.startswith("wrong: its error is ")
    assert len(by_name["eager"].samples["host_us"]) == 20
    assert by_name["eager"].saved_bytes > 0
    assert by_name[rows.PRODUCTS].reasons == {"graph_us": "no CUDA graphs on a CPU"}


def test_a_run_without_time_says_what_it_left_out(
    rows: ModuleType, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "time", SimpleNamespace(perf_counter=lambda: script.START))  # no time passes
    here = detect("cpu")
    fresh = rows.Result(device=here, environment=collect(here, {}), packages={}, rows=())
    planned = script.tiny(rows.ROWS[0])
    # Enough for the race and the cheap peers, and not for one that compiles.
    options = argparse.Namespace(budget_s=rows.race_s(planned, 20) + 3.5, rounds=20)
    found = script.run([planned], fresh, tmp_path / "cpu.json", only=frozenset(), options=options)
    by_name = {one.name: one for one in found.rows[0].peers}
    assert by_name["eager"].status == "ok"
    for name in ("compile", "compile-max-autotune", rows.FREEZING):
        assert by_name[name].status == "left out"
        assert "no time left" in by_name[name].reason


def test_the_command_names_what_it_does_not_know(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, text in (
        (["--rows", "1x2x3"], "unknown row '1x2x3'; valid: 8192x768x3072, "),
        (["--peers", "fusd"], "unknown peer 'fusd'; valid: limit, eager, "),
        (["--rounds", "19"], "--rounds must be at least 20, got 19"),
    ):
        monkeypatch.setattr(sys, "argv", ["fused.py", *arguments])
        with pytest.raises(SystemExit) as caught:
            script.main()
        assert str(caught.value).startswith(text)


@pytest.mark.full  # a whole measurement
def test_the_command_measures_and_shows(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cpu-fused.json"
    arguments = ["--device", "cpu", "--rows", "1x768x3072", "--peers", "eager", "--rounds", "20", "--out", str(out)]
    measured = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=True)
    monkeypatch.setattr(sys, "argv", ["fused.py", "--show", str(out), "--markdown"])
    script.main()
    for printed in (measured.stdout, capsys.readouterr().out):
        assert "1x64x128: M = 1, D = 64, H = 128, gelu_tanh, bfloat16, inference" in printed
        assert "eager" in printed
