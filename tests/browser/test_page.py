"""The page in a browser, offline: figures, filters, sorting, copies, both themes, a phone, and paper."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from support.bench import tool
from support.paths import RESULTS
from support.rings import only_first

pytestmark = pytest.mark.browser
FOLDER = RESULTS / "h200-choose-gemma-2b"
ROWS = 'table[data-key="results"] tbody tr:not([hidden])'


def cells(tab, column: int) -> list[str]:
    return tab.eval_on_selector_all(f"{ROWS} td:nth-child({column})", "all => all.map((each) => each.textContent)")


def choose(tab, name: str, value: str, *, on: bool) -> None:
    tab.locator(f'#filters input[name="{name}"][value="{value}"]').set_checked(on)


# ---- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["choice", "hostile", "proof"])
def test_every_figure_is_drawn_with_a_label_and_no_name_is_markup(opened, name: str) -> None:
    with opened(name) as tab:
        for place in tab.locator(".drawing").all():
            assert place.locator("svg").count() == 1, place.text_content()
            label = place.locator("[role=graphics-document]").first.get_attribute("aria-label")
            assert len(label or "") > 10
        assert tab.locator("img, b[onmouseover]").count() == 0


# ---- filters and the address -----------------------------------------------------------------------------------------


def test_filters_hide_rows_and_the_address_says_so(opened) -> None:
    with opened("choice") as tab:
        everything = len(cells(tab, 3))
        choose(tab, "backends", "fused", on=False)
        choose(tab, "tokens", "16", on=False)
        left = list(zip(cells(tab, 2), cells(tab, 3), strict=True))
        assert 0 < len(left) < everything
        assert not [each for each in left if each[0] == "16" or each[1] == "fused"]
        assert tab.locator("#shown").text_content() == f"{len(left)} of {everything} rows"
        fragment = tab.evaluate("location.hash")
    with opened("choice", fragment) as tab:
        assert list(zip(cells(tab, 2), cells(tab, 3), strict=True)) == left
        tab.click("#filters button[type=reset]")
        tab.locator("#shown", has_text="All").wait_for()
        assert (len(cells(tab, 3)), tab.evaluate("location.hash")) == (everything, "")


def test_none_and_all_do_what_they_say(opened) -> None:
    with opened("choice") as tab:
        tab.click('[data-none="backends"]')
        assert cells(tab, 3) == []
        tab.click('[data-all="backends"]')
        assert set(cells(tab, 3)) >= {"eager", "fused"}


def test_another_baseline_and_back_is_as_it_was_printed(opened) -> None:
    with opened("choice") as tab:
        times, speedups = cells(tab, 5), cells(tab, 6)
        tab.select_option('[name="baseline"]', "fused")
        assert [cells(tab, 6)[place] == "baseline" for place in range(len(times))] == [
            name == "fused" for name in cells(tab, 3)
        ]
        assert cells(tab, 6) != speedups
        assert cells(tab, 5) == times
        tab.select_option('[name="baseline"]', "eager")
        assert (cells(tab, 5), cells(tab, 6)) == (times, speedups)


def test_another_clock_shows_what_the_file_has(opened) -> None:
    profile = json.loads((FOLDER / "inference-16.json").read_text("utf-8"))
    rows = {row["backend"]: (row["clocks"] or {}).get("graph_us") for row in profile["rows"]}
    with opened("choice", "#tokens=16&clock=graph_us") as tab:
        shown = dict(zip(cells(tab, 3), cells(tab, 5), strict=True))
        for name, clock in rows.items():
            if clock is None:
                assert shown[name] == "–"
            else:
                assert float(shown[name].split()[0]) == pytest.approx(clock["median"], rel=0.02)
        assert "graph µs" in tab.text_content('table[data-key="results"] th[data-part="absolute"]')


def test_only_what_is_valid_and_one_view(opened) -> None:
    with opened("choice", "#valid=1&view=relative") as tab:
        assert "–" not in cells(tab, 6)
        assert tab.locator('th[data-part="absolute"]').is_hidden()
        assert tab.locator('th[data-part="relative"]').is_visible()


@pytest.mark.parametrize(
    "fragment",
    only_first(["#backends=%", "#nonsense=1&clock=sundial", "#tokens=", "#methods", "#=&&=,", "#view=x"]),
)
def test_any_address_is_a_page(opened, fragment: str) -> None:
    with opened("choice", fragment) as tab:
        assert tab.locator("h1").is_visible()


# ---- sorting and copies ----------------------------------------------------------------------------------------------


def test_a_click_sorts_and_another_turns_it_round_what_is_absent_last(opened) -> None:
    with opened("choice") as tab:
        head = tab.locator('table[data-key="results"] th').nth(4)
        for way, turned in (("ascending", False), ("descending", True)):
            head.locator("button").click()
            assert head.get_attribute("aria-sort") == way
            shown = tab.eval_on_selector_all(f"{ROWS} td:nth-child(5)", "all => all.map((each) => each.dataset.v)")
            known = [float(each) for each in shown if each is not None]
            assert known == sorted(known, reverse=turned)
            assert shown[len(known) :] == [None] * (len(shown) - len(known))


def copied(tab, key: str, name: str) -> str:
    tab.evaluate("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    tab.locator(f"#table-{key} .tools button", has_text=name).click()
    tab.locator(f"#table-{key} .tools [role=status]", has_text=f"copied as {name}").wait_for()
    return str(tab.evaluate("window.copied"))


def test_a_copy_holds_what_is_shown(opened) -> None:
    with opened("choice", "#tokens=16&backends=eager,fused") as tab:
        rows = list(csv.DictReader(io.StringIO(copied(tab, "results", "CSV"))))
        assert [row["backend"] for row in rows] == ["eager", "fused"]
        data = json.loads(copied(tab, "results", "JSON"))
        assert data[1]["tokens"] == "16"
        assert data[1]["event µs [p20–p80] (number)"] == pytest.approx(
            float(rows[1]["event µs [p20–p80]"].split()[0]), rel=0.01
        )
        assert copied(tab, "results", "Markdown").count("\n") == 4
        assert "\\toprule" in copied(tab, "results", "LaTeX")


def test_copies_of_hostile_names_are_escaped(opened) -> None:
    with opened("hostile") as tab:
        latex = copied(tab, "results", "LaTeX")
        assert "\\textbackslash{}textbf\\{\\%\\_\\#\\&\\$\\textasciitilde{}\\textasciicircum{}\\}" in latex
        markdown = copied(tab, "results", "Markdown")
        assert "<" not in markdown
        assert {line.replace("\\|", "").count("|") for line in markdown.splitlines()} == {9}
        rows = list(csv.DictReader(io.StringIO(copied(tab, "results", "CSV"))))
        assert "</script><script>alert(2)</script>" in [row["backend"] for row in rows]


def test_a_file_is_saved_as_it_was_on_disk(opened, tmp_path: Path) -> None:
    with opened("choice", accept_downloads=True) as tab:
        link = tab.locator("article", has=tab.locator("h3", has_text="inference-16.json")).locator("a.file")
        with tab.expect_download() as saved:
            link.click()
        saved.value.save_as(tmp_path / "saved")
        assert saved.value.suggested_filename == "inference-16.json"
        assert (tmp_path / "saved").read_bytes() == (FOLDER / "inference-16.json").read_bytes()


# ---- readers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "name", ["small", pytest.param("proof", marks=pytest.mark.full)]
)  # axe takes minutes for thousands of cells
def test_axe_finds_nothing_serious(opened, name: str, scheme: str) -> None:
    import axe_playwright_python

    axe = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
    with opened(name, color_scheme=scheme) as tab:
        tab.evaluate(axe)
        found = tab.evaluate("axe.run({ resultTypes: ['violations'] }).then((all) => all.violations)")
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in serious] == []


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["choice", "hostile", "proof"])
def test_nothing_scrolls_sideways_but_tables_in_themselves(opened, name: str, width: int) -> None:
    with opened(name, width=width) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_all_can_be_reached_by_keyboard(opened) -> None:
    with opened("proof") as tab:
        wanted = tab.locator("a[href], button, select, input, summary, [tabindex='0']").count()
        reached = set()
        for _ in range(wanted + 3):
            tab.keyboard.press("Tab")
            reached.add(tab.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        assert len(reached) >= wanted


@pytest.mark.parametrize(
    "options", [{"forced_colors": "active"}, {"java_script_enabled": False}], ids=lambda each: next(iter(each))
)
def test_words_and_tables_are_there_in_forced_colours_and_without_scripts(opened, options: dict[str, object]) -> None:
    with opened("choice", **options) as tab:
        for text in ("Who wins where", "Do not read more into this", "Every row", "Measure it again"):
            assert tab.get_by_text(text).first.is_visible()
        assert len(cells(tab, 3)) == 55
        assert tab.locator("#filters").is_visible() == options.get("java_script_enabled", True)


def test_the_picture_of_the_readme_is_of_the_page_as_it_is(browser, tmp_path: Path) -> None:
    picture = tool("picture")
    picture.take(browser, tmp_path / "report.png")
    sizes = []
    for path in (picture.PICTURE, tmp_path / "report.png"):
        data = path.read_bytes()
        sizes.append([int.from_bytes(data[place : place + 4], "big") for place in (16, 20)])
    assert sizes[0][0] == sizes[1][0] == picture.WIDTH
    assert abs(sizes[0][1] - sizes[1][1]) < 200, "python tools/picture.py"  # type differs from machine to machine


@pytest.mark.full
def test_the_printed_page_is_a4_with_every_part_open(opened) -> None:
    pypdf = pytest.importorskip("pypdf")
    with opened("choice") as tab:
        tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = false; })")
        printed = pypdf.PdfReader(io.BytesIO(tab.pdf(prefer_css_page_size=True)))
    assert {(round(float(each.mediabox.width)), round(float(each.mediabox.height))) for each in printed.pages} == {
        (595, 842)
    }
    text = " ".join(" ".join(each.extract_text() for each in printed.pages).split())
    for part in ("Who wins where", "Do not read more", "fused-graph · 8192", "python -m pip install", "@misc{"):
        assert part in text
    assert "only what is valid" not in text
