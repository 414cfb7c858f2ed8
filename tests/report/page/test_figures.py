"""The figures of a page, and the scripts that draw them."""

from __future__ import annotations

import hashlib
import json

import pytest
from support import profiles_made as made
from support.reported import rendered, source

from mlpfusion.report.figures import registry
from mlpfusion.report.page import figures
from mlpfusion.report.page.cases import cases

LISTED = json.loads((figures.VENDORED / "vendored.json").read_text(encoding="utf-8"))


def test_every_figure_is_drawn_or_says_why_not() -> None:
    sources = [source(made.profile(made.timed("eager", 100.0), made.timed("fast", 80.0)))]
    drawn, absent = figures.figures(sources, cases(sources), "event_us")
    assert sorted([*(each.name for each in drawn), *(each.name for each in absent)]) == sorted(registry.NAMES)
    assert all(each.why for each in absent)
    (ratios,) = [each for each in drawn if each.name == "ratios"]
    widths = ratios.specs["event_us"]
    assert widths["narrow"]["spec"]["width"] < widths["wide"]["spec"]["width"]
    assert ratios.table.lines[0].keys["backend"] == "fast"
    assert all(len(line.cells) == len(each.table.heads) for each in drawn for line in each.table.lines)


def test_a_page_without_a_figure_has_no_script_that_draws() -> None:
    assert "vegaEmbed=" not in rendered(made.profile(made.HUB))
    assert "vegaEmbed=" in rendered(made.profile(made.timed("eager", 100.0), made.timed("fast", 80.0)))


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.00"), (-0.25, "-0.250"), (3, "3"), (True, "yes"), (None, "–"), ("a", "a")]
)
def test_a_number_is_a_cell(value, text: str) -> None:
    assert figures._cell(value).text == text


@pytest.mark.parametrize("package", LISTED, ids=lambda each: each["name"])
def test_the_scripts_are_those_on_record_each_with_its_licence(package) -> None:
    for each in package["files"]:
        data = (figures.VENDORED / each["to"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == each["sha256"], "python tools/vendor.py"
        assert b"\r" not in data  # a browser would read another text than the one whose digest the policy has
    assert f"LICENSE-{package['name']}" in [each["to"] for each in package["files"]]
    assert any(package["version"] in each for each in figures.licences())


def test_nothing_but_what_is_listed_is_vendored() -> None:
    listed = {each["to"] for package in LISTED for each in package["files"]} | {"vendored.json"}
    assert {path.name for path in figures.VENDORED.iterdir()} == listed
    assert set(figures.SCRIPTS) < listed


@pytest.mark.parametrize("text", figures.scripts(), ids=figures.SCRIPTS)
def test_a_script_cannot_end_its_element(text: str) -> None:
    assert "</script" not in text.lower()
    assert "<!--" not in text
