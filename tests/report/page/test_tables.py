"""The tables of a page."""

from __future__ import annotations

import pytest
from support import profiles_made as made
from support.paths import RESULTS
from support.reported import HOSTILE, hostile, source

from mlpfusion.report.page import cases, standings, tables
from mlpfusion.report.page.sources import gather
from mlpfusion.report.table import document
from mlpfusion.stages.tabulate import sources

RECORDED = cases.cases(gather([str(RESULTS / "h200-profile.json")]))
WITH_A_CLOCK = (
    tables.results,
    tables.host,
    tables.ledger,
    tables.costs,
    tables.accuracy,
    tables.intermediates,
    tables.launches,
)


SETS = ("status", "summary", "speed", "host", "memory", "setup_s", "kernels", "traffic", "accuracy")


def of(*rows):
    return cases.cases([source(made.profile(*rows))])


@pytest.mark.parametrize("made_by", WITH_A_CLOCK, ids=lambda each: each.__name__)
def test_every_line_has_a_cell_for_each_head_and_what_filters_need(made_by) -> None:
    table = made_by(RECORDED, "event_us")
    assert table.lines
    for line in table.lines:
        assert len(line.cells) == len(table.heads)
        assert line.keys.keys() == {"case", "backend", "tokens", "mode", "valid"}


def test_results_show_every_row_and_why_one_has_no_time() -> None:
    table = tables.results(of(), "event_us")
    shown = {line.keys["backend"]: line for line in table.lines}
    assert list(shown) == ["eager", "compile", "liger", "hub", "triton"]
    assert shown["hub"].cells[3].more == "numerically wrong: 41 times eager's error"
    assert shown["hub"].cells[4].text == "–"
    assert shown["compile"].cells[4].text == "228.8 [228.1–229.6]"
    assert shown["compile"].cells[5].text == "1.060x [1.057–1.064]"
    assert {name for name, line in shown.items() if line.keys["valid"] == "yes"} == {"eager", "compile"}


def test_a_time_without_a_spread_is_not_shown() -> None:
    few = made.msgspec.structs.replace(
        made.EAGER, clocks=made.Clocks(event_us=made.clock(3.0, n=3, p20=None, p80=None))
    )
    (line,) = tables.results(of(few), "event_us").lines
    assert (line.cells[4].text, line.cells[4].value) == ("–", None)


def test_a_kernel_is_decoded_once_with_all_that_run_it() -> None:
    table = tables.kernels(of(made.EAGER, made.COMPILE))
    names = [line.cells[0].text for line in table.lines]
    assert len(names) == len(set(names))
    shared = next(line for line in table.lines if line.cells[0].text == "kernel_0")
    assert shared.cells[-1].text == "eager, compile"
    assert "GELU" in next(line for line in table.lines if "Gelu" in (line.cells[0].more or "")).cells[3].text.upper()


def test_a_long_name_is_short_in_the_table_and_whole_on_request() -> None:
    table = tables.kernels(cases.cases([source(hostile())]))
    found = {line.cells[0].more or line.cells[0].text for line in table.lines}
    assert HOSTILE[-1] in found
    assert all(len(line.cells[0].text) <= 64 for line in table.lines)


def test_the_limit_of_an_error_stands_beside_it() -> None:
    table = tables.accuracy(of(made.COMPILE), "event_us")
    (line,) = table.lines
    heads = [head.text for head in table.heads]
    assert line.cells[heads.index("limit")].text == "2.00"
    assert line.cells[heads.index("larger ratio")].text == "1.10"


def test_a_table_of_nothing_has_no_line() -> None:
    assert tables.host(of(made.HUB), "event_us").lines == ()
    assert tables.kernels(of(made.HUB)).lines == ()


@pytest.mark.parametrize("name", ["h200-profile.json", "h200-article-1.json", "h200-choose-gemma-2b/choice.json"])
def test_each_number_and_mark_of_a_page_is_one_that_table_prints(name: str) -> None:
    path = str(RESULTS / name)
    found = cases.cases(gather([path]))
    clock = cases.default_clock(found)
    printed = document.document(sources.read([path]), document.Options(columns=SETS))
    texts = {cell.text for table in printed.tables for line in table.lines for cell in line.cells}
    pages = [
        standings.table([cases.standing(case, clock) for case in found]),
        *(make(found, clock) for make in WITH_A_CLOCK),
    ]
    shown = [
        cell.text
        for table in pages
        for line in table.lines
        for head, cell in zip(table.heads, line.cells, strict=True)
        if head.number and head.text != "tokens"
    ]
    assert shown
    assert not [text for text in shown if text not in texts]
    marked = {cell.text for line in printed.tables[0].lines for cell in line.cells if cell.best}
    best = [cell.text for line in pages[1].lines for cell in line.cells if cell.best]
    assert best
    assert set(best) <= marked


def test_the_best_of_a_case_are_those_that_share_the_mark() -> None:
    found = of(made.timed("one", 90.0, 110.0), made.timed("two", 110.0, 90.001), made.timed("far", 300.0))
    table = tables.results(found, "event_us")
    assert [line.keys["backend"] for line in table.lines if line.cells[4].best] == ["one", "two"]


def test_an_emulated_row_says_so_where_a_time_would_be() -> None:
    (line,) = (each for each in tables.results(of(), "event_us").lines if each.keys["backend"] == "triton")
    assert line.cells[2].text == "triton (emulated)"
    assert (line.cells[4].text.startswith("emulated"), line.cells[4].value) == (True, None)
