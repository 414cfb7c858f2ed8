"""report.brief and report.conclusion: one table that fits, and at most ten lines below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles_made import COMPILE, HUB, LIGER, TRITON, profile, timed

from mlpfusion.cli import main
from mlpfusion.records.clocks import Clocks
from mlpfusion.records.profile import Row
from mlpfusion.report.profile.conclusion import MOST_LINES
from mlpfusion.report.profile.table import render
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path


def ended(text: str) -> dict[str, str]:
    """The conclusion by its labels; lines of one label are joined."""
    said: dict[str, str] = {}
    label = ""
    for line in text.rstrip("\n").split("\n\n")[-1].splitlines():
        label = line[:13].strip() or label
        said[label] = f"{said[label]}\n{line[13:]}" if label in said else line[13:]
    return said


# ---- the conclusion --------------------------------------------------------------------------------------------------


def test_the_fastest_is_named_with_its_lead_and_that_it_is_certain() -> None:
    said = ended(render(profile(timed("eager", 99, 100, 101), timed("packed", 81, 80, 79), timed("liger", 90, 91, 89))))
    assert said["fastest"].startswith("packed by event_us: 1.25x [")
    assert "vs eager, 80.0 [79.0–81.0] µs" in said["fastest"]
    assert said["certain"].startswith("yes: 1.1")
    assert said["certain"].endswith("vs the next, liger: the interval excludes 1")


def test_a_tie_is_no_certainty() -> None:
    said = ended(render(profile(timed("eager", 100), timed("packed", 78, 80, 82), timed("liger", 82, 80, 79))))
    assert said["certain"].startswith("no: ")
    assert said["certain"].endswith("vs the next, liger: a tie")


@pytest.mark.parametrize(("load", "word"), [(None, "yes"), (0.04, "yes"), (0.87, "no")])
def test_background_load_takes_the_certainty_away(load: float | None, word: str) -> None:
    said = ended(render(profile(timed("eager", 100, load=load), timed("packed", 80, load=load))))
    assert said["certain"].startswith(f"{word}: ")
    assert ("repeat on an idle host" in said["certain"]) == (word == "no")
    if load is not None:
        assert f"background load {load:.0%}" in said["certain"]


@pytest.mark.parametrize(
    "change", [{"rounds": ()}, {"dropped": 2}, {"rounds": ((80.0,) * 30,)}, {"rounds": ((0.0,) * 60,)}]
)
def test_rounds_that_cannot_be_paired_decide_nothing(change: dict[str, Any]) -> None:
    best = timed("packed", 80)
    clock = msgspec.structs.replace(best.clocks.event_us, **change)
    best = msgspec.structs.replace(best, clocks=Clocks(event_us=clock))
    said = ended(render(profile(timed("eager", 100), best)))
    assert said["certain"] == "unknown: no rounds to pair with the next, eager"


def test_eager_as_the_fastest_is_the_baseline() -> None:
    said = ended(render(profile(timed("eager", 100), timed("packed", 120))))
    assert said["fastest"].startswith("eager, the baseline, by event_us: 100")


def test_another_order_without_the_host_is_said() -> None:
    def both(name: str, event: float, graph: float) -> Row:
        one, other = timed(name, event), timed(name, graph, clock="graph_us")
        clocks = msgspec.structs.replace(one.clocks, graph_us=other.clocks.graph_us)
        return msgspec.structs.replace(one, clocks=clocks)

    rows = both("eager", 100, 90), both("packed", 80, 75), both("liger", 85, 70)
    assert ended(render(profile(*rows)))["device"].startswith("liger by graph_us: ")
    assert "device" not in ended(render(profile(*rows[:2])))


def test_what_is_wrong_is_grouped_by_its_reason() -> None:
    absent = [Row(backend=name, status="unavailable", reason="no GPU is here") for name in ("quack", "fused")]
    said = ended(render(profile(timed("eager", 100), HUB, TRITON, *absent)))
    assert said["unavailable"] == "quack, fused: no GPU is here"
    assert said["failed"] == "hub: numerically wrong: 41 times eager's error"
    assert said["emulated"] == "triton: ran 8 tokens in Triton's interpreter; no times"


def test_a_right_backend_without_a_time_is_named_with_the_reason() -> None:
    lost = msgspec.structs.replace(COMPILE, clocks=Clocks(reasons={"event_us": "the race died"}))
    few = timed("packed", 80)
    few = msgspec.structs.replace(
        few, clocks=Clocks(event_us=msgspec.structs.replace(few.clocks.event_us, n=5, p20=None, p80=None))
    )
    said = ended(render(profile(timed("eager", 100), lost, few)))
    assert said["untimed"] == "compile: the race died\npacked: 5 samples of event_us, of 20 at least"
    assert said["fastest"].startswith("eager, the baseline")


def test_a_run_that_ended_early_is_never_certain() -> None:
    rows = timed("eager", 100), timed("packed", 80)
    said = ended(render(profile(*rows, complete=False)))
    assert said["certain"].startswith("no: the run ended early; 1.25x [")


@given(
    st.lists(st.tuples(st.sampled_from(["failed", "unavailable", "emulated", "ok"]), st.integers(0, 9)), max_size=30)
)
def test_it_never_has_more_than_ten_lines_and_names_every_reason_or_where_it_is(
    kinds: list[tuple[str, int]],
) -> None:
    rows = [
        timed(f"b{place}", 80 + number)
        if word == "ok"
        else msgspec.structs.replace(TRITON, backend=f"b{place}", tokens=number)
        if word == "emulated"
        else Row(backend=f"b{place}", status=word, reason=f"reason {number} " * 30)
        for place, (word, number) in enumerate(kinds)
    ]
    for fmt in ("text", "github"):
        for source in (None, "out.json"):
            last = render(profile(timed("eager", 100), *rows), fmt, source=source).rstrip("\n").split("\n\n")[-1]
            assert len(last.splitlines()) <= MOST_LINES == 10
    text = render(profile(timed("eager", 100), *rows)).split("\n\n")[-1]
    said = {
        f"reason {number} " if word != "emulated" else f"ran {number} tokens" for word, number in kinds if word != "ok"
    }
    if "see --full" not in text:
        assert all(each in text for each in said)


def test_what_to_do_next_are_commands_that_parse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a result.json"
    silu = msgspec.structs.replace(profile().workload.spec, activation="silu")
    work = msgspec.structs.replace(profile().workload, spec=silu)
    results.save(profile(timed("eager", 100), timed("packed", 80), workload=work), file)
    text = render(results.load(file), source=str(file))
    commands = ended(text)["next"].splitlines()
    assert commands == [
        f"mlpfusion table '{file}' --full",
        f"mlpfusion diff '{file}':eager '{file}':packed",
        "mlpfusion validate packed --activation silu",
    ]
    assert main.main(["table", str(file), "--full"]) == 0
    assert main.main(["diff", f"{file}:eager", f"{file}:packed"]) == 0
    assert "Kernels" in capsys.readouterr().out


def test_a_result_in_no_file_is_to_be_kept_first() -> None:
    first, *rest = ended(render(profile(timed("eager", 100), timed("packed", 80))))["next"].splitlines()
    assert first.startswith("mlpfusion profile --json result.json")
    assert rest[0] == "mlpfusion table result.json --full"


def test_a_result_from_stdin_is_no_file_to_compare() -> None:
    said = ended(render(profile(timed("eager", 100), timed("packed", 80)), source="-"))
    assert said["next"].splitlines() == ["mlpfusion table - --full", "mlpfusion validate packed"]


def test_nothing_timed_is_said() -> None:
    said = ended(render(profile(TRITON, LIGER)))
    assert said["fastest"] == "unknown: no backend has a time with a spread, from 20 rounds on"
    assert "mlpfusion validate triton" in said["next"]
    assert ended(render(profile(LIGER)))["unavailable"] == "liger: no GPU | and no driver"


# ---- the one table ---------------------------------------------------------------------------------------------------


def test_full_and_columns_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    results.save(profile(), file)
    assert main.main(["table", str(file), "--full", "--columns", "status"]) == 2
    assert capsys.readouterr().err == "mlpfusion: --full shows all columns: give it or --columns, not both\n"
