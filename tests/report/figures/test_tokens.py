"""Times and rates over tokens: a panel for each MLP, with bands where there are samples enough."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.figures_made import check, figure, of
from support.paths import RESULTS
from support.profiles_made import COMPILE, EAGER, TRITON, clock, profile

from mlpfusion.errors import UsageError
from mlpfusion.records.clocks import Clocks
from mlpfusion.report.figures.drawing import render, style
from mlpfusion.spec import Workload
from mlpfusion.storage import results

if TYPE_CHECKING:
    from mlpfusion.report.figures.figure import Width

FOLDER = "h200-choose-gemma-2b"


def at(tokens: int, *rows, **changes):
    return profile(
        *(rows or (EAGER, COMPILE)), workload=Workload(spec=profile().workload.spec, batch=1, seq=tokens, **changes)
    )


def test_a_point_is_a_recorded_median_with_its_percentiles() -> None:
    made = figure("tokens", FOLDER, clock="graph_us")
    (told,) = (dict(zip(made.columns, row, strict=True)) for row in made.rows if row[1:3] == ("fused", 2048))
    rows = results.load(RESULTS / FOLDER / "inference-2048.json").rows
    (read,) = (row.clocks.graph_us for row in rows if row.backend == "fused" and row.clocks)
    assert (told["us"], told["us_p20"], told["us_p80"]) == (read.median, read.p20, read.p80)
    assert told["tflops"] == pytest.approx(6 * 2048 * 2048 * 16384 / read.median / 1e6)


def test_a_rate_has_the_band_of_its_time_turned_over() -> None:
    made = figure("tokens", FOLDER, clock="graph_us", value="tflops")
    for each, row in zip(made.spec["data"]["values"], made.rows, strict=True):
        assert each["value"] == row[made.columns.index("tflops")]
        assert each["low"] <= each["value"] <= each["high"]


def test_without_percentiles_there_is_no_band() -> None:
    few = msgspec.structs.replace(EAGER, clocks=Clocks(event_us=clock(240.0, n=5, p20=None, p80=None)))
    made = of("tokens", at(1, few), at(16, few))
    assert ["low" in each for each in made.spec["data"]["values"]] == [False, False]
    assert made.spec["layer"][0]["data"]["values"] == []


def test_what_is_emulated_has_no_line() -> None:
    made = of("tokens", at(1, EAGER, TRITON), at(16, EAGER, TRITON))
    assert {row[1] for row in made.rows} == {"eager"}
    assert made.notes == ("triton: emulated, which is not ranked with what was measured",)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((at(8),), "needs times at two or more numbers of tokens; file-1.json has 8"),
        ((at(1), at(16, mode="training")), "draws one mode; the files hold inference, training: name files of one"),
        (
            (at(1), at(16), at(16)),
            "'folder/file-2.json' and 'folder/file-3.json' both have eager at 16 tokens; name one",
        ),
    ],
    ids=["one", "modes", "twice"],
)
def test_only_one_mode_is_drawn_and_no_tokens_twice(files, said: str) -> None:
    with pytest.raises(UsageError, match=r".") as raised:
        of("tokens", *files)
    assert said in str(raised.value)


@pytest.mark.parametrize("width", [84, 178])
def test_each_mlp_has_a_panel_of_its_own_and_all_of_them_the_width(width: Width) -> None:
    made = figure("tokens", "h200-choose-article", FOLDER, width=width)
    check(made)
    assert [view["title"]["text"] for view in made.spec["vconcat"]] == ["article", "gemma-2b"]
    assert sum(len(view["data"]["values"]) for view in made.spec["vconcat"]) == len(made.rows)
    assert {row[0] for row in made.rows} == {"article", "gemma-2b"}
    pytest.importorskip("vl_convert", reason="needs the extra figures")
    drawn = render.render(made, "svg").decode()
    (wide,) = re.findall(r'<svg [^>]*width="([\d.]+)mm"', drawn)
    assert float(wide) == pytest.approx(width, rel=1e-4)
    (size,) = set(re.findall(r'viewBox="0 0 ([\d.]+)', drawn))
    assert 0.94 < float(size) / style.pixels(width) <= 1  # so that type is not smaller than in a single one
