"""Comparisons as text, Markdown and JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mlpfusion.errors import UsageError
from mlpfusion.records.comparison import (
    ClockChange,
    Comparison,
    FactChange,
    GroupChange,
    RowChange,
    SelfComparison,
    SelfRow,
    SettingChange,
)
from mlpfusion.report.comparison import FORMATS, MOST_CHARACTERS, render, render_self


def time(word: Any = "same", clock: str = "graph_us", **changes: Any) -> ClockChange:
    fields = {
        "baseline_us": 217.04,
        "candidate_us": 219.09,
        "ratio": 0.998,
        "low": 0.973,
        "high": 1.024,
        "processes": (5, 5),
    }
    return ClockChange(**{**fields, "clock": clock, "word": word, **changes})


def row(name: str = "liger", *times: ClockChange, word: Any = "same", facts: tuple[FactChange, ...] = ()) -> RowChange:
    return RowChange(baseline=name, candidate=name, word=word, times=times or (time(word),), facts=facts)


def comparison(*rows: RowChange, **changes: Any) -> Comparison:
    group = GroupChange(title="8192 tokens", rows=rows, control="eager", control_times=(time(None, ratio=0.99),))
    made = Comparison(schema=1, kind="comparison", mlpfusion="0.1.0", baseline="a.json", candidate="b.json",
                      threshold=0.01, confidence=0.99, groups=(group,))  # fmt: skip
    return msgspec.structs.replace(made, **changes)


WORDS = [
    (time("slower"), "slower"),
    (time("faster", reason="one process"), "faster, one process"),
    (time("inconclusive", needed=9), "inconclusive; 9 processes a side would tell"),
    (
        time("inconclusive", reason="one process"),
        "inconclusive, one process; more than 100 processes a side would tell",
    ),
    (time(None, reason="the host: background load 20% in the baseline"), "not decisive: the host: background load 20%"),
]


@pytest.mark.parametrize("fmt", ["text", "github"])
@pytest.mark.parametrize(("change", "expected"), WORDS, ids=[text[:20] for _, text in WORDS])
def test_a_row_says_both_times_the_ratio_and_its_verdict(fmt: str, change: ClockChange, expected: str) -> None:
    page = render(comparison(row("liger", change, word=change.word)), fmt)
    line = next(line for line in page.splitlines() if "217.0" in line and "liger" in line)
    for part in ("219.1", "+0.9%", "0.998x [0.973–1.024]", expected):
        assert part in line


def test_the_clocks_that_are_shown() -> None:
    every = tuple(time(clock=clock) for clock in ("graph_us", "kernel_us", "event_us", "wall_us"))
    assert [
        clock
        for clock in ("graph_us", "kernel_us", "event_us", "wall_us")
        if clock in render(comparison(row("x", *every)))
    ] == ["graph_us", "event_us"]
    assert "wall_us" in render(comparison(row("x", *every)), full=True)
    slow = (*every[:3], time("slower", "wall_us"))
    assert "wall_us" in render(comparison(row("x", *slow)))
    assert "wall_us" in render(comparison(row("x", every[3])))


def test_a_regression_is_named_at_the_end() -> None:
    fact = FactChange(name="round-trips", baseline="3", candidate="4", worse=True)
    page = render(comparison(row("liger", time("slower"), word="slower", facts=(fact,)), row("triton")))
    assert "regressions: liger (slower by graph_us, round-trips 4)" in page
    assert "rows: 1 same, 1 slower" in page
    assert render(comparison(row())).rstrip().endswith("regressions: none")


def test_clocks_that_disagree_are_both_named() -> None:
    page = render(comparison(row("fused", time("faster"), time("slower", "wall_us"), word="slower")))
    assert "regressions: fused (slower by wall_us, though faster by graph_us)" in page


def test_settings_and_rows_of_one_side() -> None:
    setting = SettingChange(name="driver", baseline="1", candidate="2", weight="refused")
    page = render(comparison(row(), settings=(setting,), only_candidate=tuple(f"row{n}" for n in range(20))))
    assert "compared by --force" in page
    assert "in the candidate alone: row0" in page
    assert "and 8 more" in page


HOSTILE = ["</script><script>", "a|b", "`code`", "\u202eright to left", "x" * 10_000, "\\%_#&<b>", "a\nb", "\x1b[31m"]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("fmt", ["text", "github"])
def test_a_hostile_name_breaks_no_table(name: str, fmt: str) -> None:
    fact = FactChange(name="kernels by name", baseline=name, candidate="other", worse=False)
    page = render(comparison(row(name, facts=(fact,)), baseline=name), fmt)
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert max(map(len, page.splitlines())) < 400
    if fmt == "github":
        tables = [line for line in page.splitlines() if line.startswith("|")]
        plain = [line.replace("\\|", "") for line in tables]
        assert {line.count("|") for line in plain} <= {6, 8}
        assert all("<" not in line or "`" in line for line in page.splitlines())


def test_markdown_fits_a_comment_whatever_the_study() -> None:
    rows = tuple(row(f"{'backend' * 9}{place}", time("slower"), word="slower") for place in range(1500))
    page = render(comparison(*rows), "github")
    assert len(page) <= MOST_CHARACTERS + 5000 < 65_536
    assert "--format json has all" in page
    quiet = (*(row(f"{'backend' * 9}{place}") for place in range(1500)), row("bad", time("slower"), word="slower"))
    page = render(comparison(*quiet), "github")
    assert "| `bad`" in page
    assert len(page) < 10_000


def test_json_is_the_record_itself() -> None:
    made = comparison(row())
    assert msgspec.json.decode(render(made, "json"), type=Comparison) == made


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_file_against_itself(fmt: str) -> None:
    one = SelfRow(
        group="8192 tokens",
        backend="triton",
        clock="graph_us",
        processes=12,
        spread=0.0047,
        splits=462,
        alarms=3,
        largest=0.012,
    )
    made = SelfComparison(schema=1, kind="self-comparison", mlpfusion="0.1.0", source="a.json", threshold=0.01,
                          confidence=0.99, rows=(one,), notes=("a note",))  # fmt: skip
    page = render_self(made, fmt)
    if fmt == "json":
        assert msgspec.json.decode(page, type=SelfComparison) == made
        return
    for part in ("0.47%", "3 of 462", "1.20%", "false alarms: 3 of 462 splits, 0.65%", "a note"):
        assert part in page


@pytest.mark.parametrize("fmt", ["csv", "pdf", ""])
def test_a_format_that_is_none(fmt: str) -> None:
    with pytest.raises(UsageError, match="valid: text, github, json"):
        render(comparison(row()), fmt)


def test_what_no_ratio_is_on_the_page_for_is_not_explained() -> None:
    absent = row("liger", time(None, ratio=None, low=None, high=None))
    assert "ratio: baseline" not in render(comparison(absent))
    one = comparison(row("liger", time()))
    assert "control's change taken out" in render(one)
    group = msgspec.structs.replace(one.groups[0], control=None, control_times=())
    alone = render(msgspec.structs.replace(one, groups=(group,)))
    assert "ratio: baseline" in alone
    assert "control's change" not in alone


def test_a_page_without_changes_says_so() -> None:
    made = comparison(RowChange(baseline="liger", candidate="liger", word=None))
    group = msgspec.structs.replace(made.groups[0], control=None, control_times=())
    assert "nothing that is compared differs" in render(msgspec.structs.replace(made, groups=(group,)))


def test_noise_beyond_a_thousand_needs_no_digits() -> None:
    text = render(comparison(row("liger", time(ratio=71.57, low=1e-30, high=1e30))))
    assert "71.6x [<0.001–>1000]" in text


@pytest.mark.parametrize("name", ["li`ger", "``", "a_b*c", "x" * 200])
def test_a_name_in_a_line_is_code(name: str) -> None:
    made = msgspec.structs.replace(row(name, time("slower"), word="slower"), note="its kernels changed")
    lines = render(comparison(made), "github").splitlines()
    (noted,) = [line for line in lines if "its kernels changed" in line]
    assert noted.startswith("- `")
    assert noted.count("`") == 2
    (bad,) = [line for line in lines if line.startswith("- regressions: ")]
    assert bad.startswith("- regressions: `")
    assert "\\`" not in bad + noted


@pytest.mark.parametrize("fmt", ["text", "github"])
def test_clocks_that_few_processes_do_not_judge_have_no_rate(fmt: str) -> None:
    one = SelfRow(
        group="8192 tokens", backend="triton", clock="wall_us", processes=5, spread=0.05, splits=0, alarms=0,
        largest=0.1,
    )  # fmt: skip
    found = SelfComparison(
        schema=1, kind="self-comparison", mlpfusion="0.1.0", source="a.json", threshold=0.01, confidence=0.99,
        rows=(one,),
    )  # fmt: skip
    text = render_self(found, fmt)
    assert "false alarms: not judged" in text
    assert "0 of 0" not in text
