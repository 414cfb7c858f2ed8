"""The best of a race: marked alone only where its interval excludes every other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.paths import RESULTS
from support.races_made import emulated, failed, foresight, race, source, without_rounds

from mlpfusion.records.clocks import Ratio
from mlpfusion.stages.tabulate.races import Entry, of_sources
from mlpfusion.stages.tabulate.rank import Ranked, rank
from mlpfusion.stages.tabulate.sources import read


@pytest.mark.parametrize(
    ("factors", "best"),
    [
        ({"fused": 0.5, "triton": 0.9}, {"fused"}),
        ({"fused": 1.5}, {"eager"}),
        ({"fused": 0.5, "same": 0.5, "triton": 0.9}, {"fused", "same"}),
        ({"fused": 1.0}, {"eager", "fused"}),
    ],
)
@pytest.mark.parametrize("processes", [1, 5])
def test_the_best_shares_its_place_with_what_it_is_not_known_to_beat(
    factors: dict[str, float], best: set[str], processes: int
) -> None:
    found = rank(race(factors, processes=processes, spread=0.0).entries, "event_us")
    assert found.best == best
    assert found.among == {"eager", *factors}


def changed(entries: tuple[Entry, ...], name: str, **changes: object) -> tuple[Entry, ...]:
    def one(entry: Entry) -> Entry:
        assert entry.row.clocks is not None
        clock = replace(entry.row.clocks.event_us, **changes)
        return entry._replace(row=replace(entry.row, clocks=replace(entry.row.clocks, event_us=clock)))

    return tuple(one(each) if each.name == name else each for each in entries)


@pytest.mark.parametrize(("interval", "best"), [((0.48, 0.52), {"fused"}), ((0.48, 0.62), {"fused", "triton"})])
def test_without_rounds_intervals_that_meet_are_a_tie(interval: tuple[float, float], best: set[str]) -> None:
    entries = race({"fused": 0.5, "triton": 0.6}).entries
    low, high = interval
    wide = Ratio(baseline="eager", median=0.5, low=low, high=high, confidence=0.95, n=60)
    entries = changed(entries, "fused", rounds=(), ratio_to_eager=wide)
    assert rank(entries, "event_us").best == best


def test_without_rounds_or_ratios_nothing_is_known_to_be_slower() -> None:
    entries = race({"fused": 0.5}).entries
    assert rank(changed(entries, "fused", rounds=(), ratio_to_eager=None), "event_us").best == {"eager", "fused"}


def test_a_choice_is_ranked_by_its_ratios_to_the_winner() -> None:
    found = of_sources(read([str(RESULTS / "h200-choose-article" / "choice.json")]))
    profiles = of_sources(read([str(RESULTS / "h200-choose-article")]))
    for choice, profile in zip(found, profiles, strict=True):
        assert choice.entries[0].row.clocks is not None
        assert choice.entries[0].row.clocks.event_us == without_rounds(choice.entries[0].row.clocks.event_us)  # type: ignore[arg-type]
        assert rank(choice.entries, "event_us") == rank(profile.entries, "event_us")


def test_what_was_not_measured_has_no_place() -> None:
    entries = (*race({"fused": 0.5}, extra=(failed(), emulated())).entries,)
    (predicted,) = of_sources([source(foresight())])
    found = rank((*entries, *predicted.entries), "event_us")
    assert found.among == {"eager", "fused"}
    assert rank(predicted.entries, "event_us") == Ranked()


def test_one_row_is_not_the_best_of_anything() -> None:
    assert rank(race({}).entries, "event_us") == Ranked()


def test_a_row_with_one_sample_has_no_place() -> None:
    entries = changed(race({"fused": 0.5, "triton": 0.9}).entries, "fused", n=1, p20=None, p80=None, rounds=((9.0,),))
    assert rank(entries, "event_us").among == {"eager", "triton"}


def test_rows_with_another_state_of_the_cache_are_not_ranked() -> None:
    entries = changed(race({"fused": 0.5, "triton": 0.9}).entries, "fused", l2="warm")
    assert rank(entries, "event_us") == Ranked()


@given(st.lists(st.floats(0.3, 3), min_size=1, max_size=4))
def test_the_lowest_median_always_has_the_mark(factors: list[float]) -> None:
    entries = race({f"b{number}": each for number, each in enumerate(factors)}, rounds=25, processes=1).entries
    medians = {each.name: each.row.clocks.event_us.median for each in entries}  # type: ignore[union-attr]
    assert min(medians, key=lambda name: medians[name]) in rank(entries, "event_us").best
