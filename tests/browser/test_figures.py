"""The figures of the page follow its filters: backend, tokens, mode, clock and baseline."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.rings import only_first

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.browser
MARKS = ".mark-symbol.role-mark path, .mark-rect.role-mark path, .mark-text.role-mark text"


def redrawn(tab, change: Callable[[], object]) -> None:
    """Changes the page, and waits until its figures are drawn anew."""
    before = tab.get_attribute("body", "data-drawn")
    change()
    tab.wait_for_selector(f"body:not([data-drawn='{before}'])", timeout=120_000, state="attached")


def box(tab, name: str, value: str) -> Callable[[], object]:
    return lambda: tab.locator(f'#filters input[name="{name}"][value="{value}"]').uncheck()


def figure(tab, name: str):
    return tab.locator("article", has=tab.locator(f"#table-figure-{name}"))


def labels(tab, name: str) -> dict[str, float]:
    """The ratio of each row of the figure `ratios`, from the words of its points."""
    found = {}
    for each in figure(tab, name).locator(".mark-symbol.role-mark path").all():
        said = each.get_attribute("aria-label") or ""
        row, ratio = re.search(r"row: (.*?);", said), re.search(r"log scale\): ([\d.]+)", said)
        assert row, said
        assert ratio, said
        found[row[1]] = float(ratio[1])
    return found


@pytest.mark.parametrize(
    ("name", "value", "label"),
    only_first([("backends", "packed", "packed ·"), ("tokens", "16", "16 tok"), ("modes", "training", "training")]),
)
def test_every_figure_loses_what_a_filter_takes_out(opened, name: str, value: str, label: str) -> None:
    with opened("modes") as tab:
        names = [each.get_attribute("id") for each in tab.locator("figure[id^='table-figure-']").all()]
        places = tab.locator(".drawing").all()
        before = [place.locator(MARKS).count() for place in places]
        assert sum(label in (place.text_content() or "") for place in places) >= 4
        redrawn(tab, box(tab, name, value))
        after = [place.locator(MARKS).count() for place in places]
        assert label not in " ".join(place.text_content() or "" for place in places)
        kept = dict(zip(names, zip(before, after, strict=True), strict=True))
        # Where the backend won nothing, the map of winners stays as it is.
        assert {each for each, (all_, left) in kept.items() if not 0 < left < all_} <= {"table-figure-winners"}, kept
        for table in tab.locator("figure[id^='table-figure-'] tbody").all():
            shown = table.evaluate("body => [...body.rows].filter((row) => !row.hidden).length")
            assert 0 < shown <= table.locator("tr").count()
        redrawn(tab, lambda: tab.click("#filters button[type=reset]"))
        assert [place.locator(MARKS).count() for place in places] == before


def test_a_panel_that_the_filters_empty_is_gone(opened) -> None:
    with opened("panels", "#tokens=16,64") as tab:
        shown = figure(tab, "tokens").locator(".drawing").text_content() or ""
        assert ("768×3072" in shown, "512×2048" in shown) == (True, False)
        redrawn(tab, lambda: tab.click("#filters button[type=reset]"))
        shown = figure(tab, "tokens").locator(".drawing").text_content() or ""
        assert ("768×3072" in shown, "512×2048" in shown) == (True, True)


@pytest.mark.full
def test_figures_of_times_follow_the_clock_with_their_captions_and_numbers(opened) -> None:
    with opened("choice") as tab:
        before = labels(tab, "ratios")
        redrawn(tab, lambda: tab.select_option('[name="clock"]', "graph_us"))
        assert labels(tab, "ratios") != before
        for name in ("ratios", "tokens", "winners"):
            place = figure(tab, name)
            assert "by graph_us" in (place.locator(".figure figcaption").text_content() or "")
            column = [each.text_content() for each in place.locator("th").all()].index("clock") + 1
            clocks = place.locator(f"tbody tr:not([hidden]) td:nth-child({column})").all_text_contents()
            assert set(clocks) == {"graph_us"}
        redrawn(tab, lambda: tab.select_option('[name="clock"]', "event_us"))
        assert labels(tab, "ratios") == before


@pytest.mark.full
def test_speedups_follow_the_baseline_as_the_rows_do(opened) -> None:
    with opened("choice") as tab:
        before = labels(tab, "ratios")
        redrawn(tab, lambda: tab.select_option('[name="baseline"]', "fused"))
        assert figure(tab, "ratios").locator("h3").text_content() == "Speedup over fused"
        assert (figure(tab, "ratios").locator(".figure figcaption").text_content() or "").startswith(
            "Speedup over fused by"
        )
        now = labels(tab, "ratios")
        rows = tab.eval_on_selector_all(
            'table[data-key="results"] tbody tr',
            "all => all.map((row) => [row.cells[2].textContent, row.cells[1].textContent, row.cells[5].dataset.v])",
        )
        known = {f"{name} · {tokens} tok": float(ratio) for name, tokens, ratio in rows if ratio and name != "fused"}
        assert now.keys() == known.keys()
        assert now == pytest.approx(known, rel=1e-3)
        assert not figure(tab, "ratios").locator("tbody tr:not([hidden])").count()  # they are of the other baseline
        redrawn(tab, lambda: tab.select_option('[name="baseline"]', "eager"))
        assert labels(tab, "ratios") == before
