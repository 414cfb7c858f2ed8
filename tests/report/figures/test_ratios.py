"""The forest plot of speedups: recorded ratios and their intervals, turned over; nothing emulated among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from support.comparisons_made import raced
from support.figures_made import HOSTILE, check, figure, of
from support.paths import RESULTS
from support.profiles_made import COMPILE, EAGER, HUB, LIGER, TRITON, profile

from mlpfusion import stats
from mlpfusion.errors import UsageError
from mlpfusion.records.clocks import Clocks
from mlpfusion.storage import results

if TYPE_CHECKING:
    from mlpfusion.report.figures.figure import Figure


def column(made: Figure, name: str) -> list[object]:
    return [row[made.columns.index(name)] for row in made.rows]


def test_a_row_is_the_recorded_ratio_turned_over() -> None:
    made = of("ratios", profile(EAGER, COMPILE))
    check(made)
    (row,) = made.rows
    told = dict(zip(made.columns, row, strict=True))
    assert (told["backend"], told["clock"], told["certain"]) == ("compile", "event_us", True)
    assert (told["speedup"], told["low"], told["high"]) == (1 / 0.943, 1 / 0.946, 1 / 0.940)


def test_another_baseline_takes_the_rounds_of_both() -> None:
    found = results.load(RESULTS / "h200-profile.json")
    made = figure("ratios", "h200-profile.json", baseline="fused", clock="graph_us")
    rows = {row.backend: row.clocks.graph_us for row in found.rows if row.clocks}
    for name, value in zip(column(made, "backend"), column(made, "speedup"), strict=True):
        judged = stats.paired(rows[str(name)], rows["fused"], "fused")  # type: ignore[arg-type]
        assert value == 1 / judged.median  # type: ignore[union-attr]
    assert "fused" not in column(made, "backend")
    assert made.caption.startswith("Speedup over fused by graph_us")


def test_processes_are_the_unit_where_there_are_several() -> None:
    made = of("ratios", raced({"triton": 0.8}, processes=5), clock="graph_us", baseline="eager")
    assert column(made, "speedup")[0] == pytest.approx(1.25, rel=0.01)
    assert "60 rounds" not in made.caption
    assert "300 rounds in 5 processes" in made.caption


def test_what_is_emulated_failed_or_untimed_is_not_ranked_but_named() -> None:
    made = of("ratios", profile(EAGER, COMPILE, LIGER, HUB, TRITON))
    assert column(made, "backend") == ["compile"]
    assert made.notes == (
        "liger: unavailable: no GPU | and no driver",
        "hub: failed: numerically wrong: 41 times eager's error",
        "triton: emulated, which is not ranked with what was measured",
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((EAGER,), "has eager ok"),
        ((LIGER, HUB), "has liger unavailable, hub failed"),
        ((TRITON,), "has triton ok (emulated)"),
        ((EAGER, msgspec.structs.replace(COMPILE, clocks=Clocks())), "has eager ok, compile ok"),
    ],
    ids=["alone", "failed", "emulated", "no times"],
)
def test_without_a_ratio_it_says_what_the_file_has(rows, said: str) -> None:
    with pytest.raises(UsageError, match="needs rows with a ratio to 'eager'") as raised:
        of("ratios", profile(*rows))
    assert str(raised.value).endswith(f"file-1.json {said}")


def test_each_shape_has_its_rows_by_ascending_tokens() -> None:
    made = figure("ratios", "h200-choose-article", clock="graph_us")
    check(made)
    assert list(dict.fromkeys(column(made, "shape"))) == [f"{n} tok" for n in (1, 16, 256, 2048, 8192)]
    labels = [each["row"] for each in made.spec["data"]["values"]]
    assert len(set(labels)) == len(labels) == len(made.rows)
    assert labels[0] == "compile · 1 tok"


def test_a_grid_is_raced_anew_from_its_samples() -> None:
    made = figure("ratios", "h200-grid-first.json", clock="graph_us")
    assert len(made.rows) > 100
    assert "limit" not in column(made, "backend")


def test_the_same_workload_of_two_files_is_told_by_the_file() -> None:
    made = figure("ratios", "h200-profile.json", "h200-article.json")
    assert set(column(made, "shape")) == {"h200-profile.json", "h200-article.json"}


@pytest.mark.parametrize("width", [84, 178])
def test_names_are_data(width: int) -> None:
    rows = [msgspec.structs.replace(COMPILE, backend=name) for name in HOSTILE]
    made = of("ratios", profile(EAGER, *rows), width=width)
    check(made)
    assert column(made, "backend") == list(HOSTILE)
    assert all(len(each["row"]) <= 60 for each in made.spec["data"]["values"])


def test_more_rows_than_are_read_are_refused() -> None:
    rows = [msgspec.structs.replace(COMPILE, backend=f"mine-{number}") for number in range(90)]
    found = [profile(EAGER, *rows, created=f"2026-01-0{day}T03:04:05+00:00") for day in range(1, 6)]
    with pytest.raises(UsageError, match="would have 450 rows; at most 400: name fewer files"):
        of("ratios", *found)
