"""Cases of results, and who is fastest in them."""

from __future__ import annotations

import pytest
from support import profiles_made as made
from support.paths import RESULTS
from support.reported import source

from mlpfusion.report.page import cases
from mlpfusion.report.page.sources import gather
from mlpfusion.stats import paired

FOLDER = gather([str(RESULTS / "h200-choose-article")])
CHOICE = [each for each in FOLDER if each.name == "choice.json"]


def only(*rows, **changes):
    (case,) = cases.cases([source(made.profile(*rows, **changes))])
    return case


def names(standing):
    return [each.row.backend for each in standing.rivals]


def test_a_choice_s_points_are_cases_only_where_no_file_has_their_samples() -> None:
    both, alone = cases.cases(FOLDER), cases.cases(CHOICE)
    assert [case.tokens for case in both] == [case.tokens for case in alone] == [1, 16, 256, 2048, 8192]
    assert all(case.chosen_by is None for case in both)
    assert all(case.chosen_by is not None for case in alone)


@pytest.mark.parametrize("place", range(5))
def test_a_choice_alone_ranks_as_its_samples_do(place: int) -> None:
    clock = cases.default_clock(cases.cases(CHOICE))
    with_samples = cases.standing(cases.cases(FOLDER)[place], clock)
    without = cases.standing(cases.cases(CHOICE)[place], clock)
    assert without.winner is not None
    assert without.winner.backend == with_samples.winner.backend
    assert {each.row.backend for each in without.tied} == {each.row.backend for each in with_samples.tied}


def test_several_profiles_of_one_file_are_cases_of_their_names() -> None:
    found = cases.cases(gather([str(RESULTS / "h200-traffic.json")]))
    assert len(found) > 1
    assert all(case.source.startswith("h200-traffic.json:") for case in found)


def test_the_lowest_median_leads_and_an_interval_beyond_1_decides() -> None:
    found = cases.standing(
        only(made.timed("eager", 100.0), made.timed("slow", 120.0), made.timed("fast", 80.0)), "event_us"
    )
    assert found.winner.backend == "fast"
    assert names(found) == ["eager", "slow"]
    assert found.tied == ()


def test_what_overlaps_is_a_tie() -> None:
    case = only(made.timed("one", 90.0, 110.0), made.timed("two", 110.0, 90.001), made.timed("far", 300.0))
    found = cases.standing(case, "event_us")
    assert [each.row.backend for each in found.tied] == ["two"]


def test_without_pairs_nothing_is_decided() -> None:
    rows = made.timed("one", 90.0), made.timed("two", 110.0)
    bare = [made.msgspec.structs.replace(row.clocks.event_us, rounds=(), ratio_to_eager=None) for row in rows]
    case = only(
        *(made.msgspec.structs.replace(r, clocks=made.Clocks(event_us=b)) for r, b in zip(rows, bare, strict=True))
    )
    (rival,) = cases.standing(case, "event_us").rivals
    assert (rival.ratio, rival.is_behind) == (None, False)


@pytest.mark.parametrize("row", [made.LIGER, made.HUB, made.TRITON], ids=lambda row: row.status)
def test_what_is_not_measured_and_right_is_not_ranked(row) -> None:
    assert cases.standing(only(row), "event_us").winner is None
    assert not cases.is_timed(row, "event_us")


def test_a_ratio_is_the_same_from_either_side() -> None:
    one, two = made.timed("one", 90.0, 95.0), made.timed("two", 110.0, 104.0)
    case = only(one, two)
    there, back = cases.ratio_of(case, one, two, "event_us"), cases.ratio_of(case, two, one, "event_us")
    assert there == paired(one.clocks.event_us, two.clocks.event_us, "two")
    assert there.median == pytest.approx(1 / back.median, rel=0.01)


def test_the_recorded_ratio_to_eager_is_the_one_that_is_shown() -> None:
    eager, other = made.timed("eager", 100.0), made.timed("other", 50.0)
    case = only(eager, other)
    assert cases.ratio_of(case, other, eager, "event_us") == other.clocks.event_us.ratio_to_eager
    turned = cases.ratio_of(case, eager, other, "event_us")
    assert (turned.baseline, turned.median) == ("other", pytest.approx(2.0))


def test_the_clock_shown_first_is_one_that_was_read() -> None:
    assert cases.default_clock([only(made.timed("a", 1.0, clock="graph_us"))]) == "graph_us"
    assert cases.clocks_read([only(made.timed("a", 1.0, clock="graph_us"))]) == ("graph_us",)
    assert cases.clocks_read([only(made.HUB)]) == ()


def test_one_token_is_not_tokens() -> None:
    assert [cases.tokens(1), cases.tokens(2)] == ["1 token", "2 tokens"]
