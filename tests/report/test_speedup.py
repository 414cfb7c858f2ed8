"""report.speedup: every ratio of times is shown as baseline over candidate, whatever is reported."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bench import bench
from support.paths import RESULTS
from support.profiles_made import COMPILE, EAGER, clock, profile

from mlpfusion.records.clocks import Ratio
from mlpfusion.records.proof import Proof
from mlpfusion.records.validation import Peer, Verdict
from mlpfusion.report import choice, proof, speedup, validation
from mlpfusion.report.profile import table
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

FACTORS = st.floats(1e-3, 1e3)


def ratio(low: float, median: float, high: float) -> Ratio:
    return Ratio(baseline="eager", median=median, low=low, high=high, confidence=0.95, n=60)


def shown(text: str) -> tuple[float, float, float]:
    """The speedup and its interval in a text."""
    found = re.search(r"([\d.]+|inf)x \[([\d.]+|inf)–([\d.]+|inf)\]", text)
    assert found, text
    return tuple(map(float, found.groups()))  # type: ignore[return-value]


@given(st.lists(FACTORS, min_size=3, max_size=3).map(sorted))
def test_the_inverse_keeps_its_interval_in_order(three: list[float]) -> None:
    low, median, high = three
    found = speedup.of(ratio(low, median, high))
    assert found.low <= found.median <= found.high
    assert math.isclose(found.median * median, 1)
    assert (math.isclose(found.low * high, 1), math.isclose(found.high * low, 1)) == (True, True)
    assert found.certain == (high < 1 or low > 1)


def test_a_ratio_of_nothing_is_infinite_and_printed() -> None:
    assert speedup.cell(ratio(0.0, 0.0, 0.0)) == "infx [inf–inf]"
    assert speedup.cell(None) == "–"


# ---- each report: half the baseline's time is 2x --------------------------------------------------------------------

TWICE = ratio(0.4, 0.5, 0.625)


def peer_cell(fmt: str) -> str:
    made = Verdict(
        target="mine",
        kind="act_mul",
        activation="gelu",
        word="valid",
        headline="it is right",
        peers=(Peer(name="inductor", speed="faster", ratio=TWICE, clock="event_us"),),
    )
    return validation.page(made, github=fmt == "github")


def profile_cell(fmt: str) -> str:
    fast = msgspec.structs.replace(
        COMPILE, clocks=msgspec.structs.replace(COMPILE.clocks, event_us=clock(120.0, ratio_to_eager=TWICE))
    )
    return table.render(profile(EAGER, fast), fmt)


@pytest.mark.parametrize("fmt", ["text", "github"])
@pytest.mark.parametrize("report", [peer_cell, profile_cell])
def test_half_the_time_is_twice_as_fast(report: Any, fmt: str) -> None:
    assert shown(report(fmt)) == pytest.approx((2.0, 1.6, 2.5))


@pytest.mark.parametrize("fmt", ["csv", "json"])
def test_numbers_for_programs_have_the_same_direction(fmt: str) -> None:
    columns = ["event_us", "speedup_vs_eager"]
    fast = msgspec.structs.replace(
        COMPILE, clocks=msgspec.structs.replace(COMPILE.clocks, event_us=clock(120.0, ratio_to_eager=TWICE))
    )
    text = table.render(profile(EAGER, fast), fmt, columns)
    row = list(csv.DictReader(io.StringIO(text)))[1] if fmt == "csv" else json.loads(text)["rows"][1]
    for name in ("event_us_speedup", "speedup_vs_eager"):
        assert [float(row[f"{name}{end}"]) for end in ("", "_low", "_high")] == [2.0, 1.6, 2.5]


@pytest.mark.parametrize("model", ["gemma-2b", "article"])
def test_no_runner_up_of_a_recorded_choice_is_faster_than_the_winner(model: str) -> None:
    made = results.load_choice(RESULTS / f"h200-choose-{model}" / "choice.json")
    rows = list(csv.DictReader(io.StringIO(choice.render(made, "csv"))))
    values = [float(row["speedup_vs_winner"]) for row in rows if row["speedup_vs_winner"]]
    assert len(values) > 20
    assert max(values) <= 1


@pytest.mark.parametrize("path", sorted(RESULTS.glob("h200-prove-*.json")), ids=lambda path: path.stem)
def test_a_recorded_proof_shows_the_original_over_the_swapped(path: Path) -> None:
    recorded = msgspec.json.decode(path.read_bytes(), type=Proof)
    assert recorded.speed is not None
    text = proof.render(recorded)
    row = "swapped " if recorded.how == "swap" else "with the pass "
    line = next(each for each in text.splitlines() if each.startswith(row) and "x [" in each)
    assert shown(line)[0] == pytest.approx(recorded.speed.original.median / recorded.speed.swapped.median, rel=0.01)


# ---- benches ---------------------------------------------------------------------------------------------------------


def test_act_mul_is_shown_beside_copies_of_the_same_traffic(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = json.loads((RESULTS / "h200-act-mul.json").read_text(encoding="utf-8"))["forward 8192x3072"]["graph"]
    bench("act_mul").show("forward", recorded)
    lines = capsys.readouterr().out.splitlines()
    assert "above 1 is faster" in next(line for line in lines if line.startswith("forward"))
    speedups = [float(line.rsplit(maxsplit=1)[1].removesuffix("x")) for line in lines if line.endswith("x")]
    assert len(speedups) == len(recorded)
    assert speedups == sorted(speedups, reverse=True)  # the fastest comes first
    assert not any("limit" in line for line in lines)
    assert any(line.startswith("  same traffic: torch.add") and line.endswith(" 1.000x") for line in lines)
