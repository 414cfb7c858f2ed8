"""Times relative to another baseline: round by round, and to eager as the file has it."""

from __future__ import annotations

import pytest
from support.paths import RESULTS
from support.races_made import failed, race

from mlpfusion import stats
from mlpfusion.errors import UsageError
from mlpfusion.stages.tabulate.races import Race, of_sources
from mlpfusion.stages.tabulate.rebase import rebased
from mlpfusion.stages.tabulate.sources import read


def ratios(found: Race, clock: str = "event_us") -> dict[str, object]:
    return {each.name: getattr(getattr(each.row.clocks, clock, None), "ratio_to_eager", None) for each in found.entries}


def test_ratios_are_those_of_paired_rounds() -> None:
    made = race({"fused": 0.5, "triton": 0.8})
    (found,) = rebased([made], "triton")
    clocks = {each.name: each.row.clocks.event_us for each in made.entries}  # type: ignore[union-attr]
    assert ratios(found) == {
        "eager": stats.paired(clocks["eager"], clocks["triton"], "triton"),  # type: ignore[arg-type]
        "fused": stats.paired(clocks["fused"], clocks["triton"], "triton"),  # type: ignore[arg-type]
        "triton": None,
    }


def test_ratios_to_eager_stay_those_of_the_file() -> None:
    made = race({"fused": 0.5})
    assert rebased([made], "eager") == (made,)


def test_a_race_without_the_baseline_has_no_ratios() -> None:
    _, other = rebased([race({"fused": 0.5}), race({"triton": 0.9})], "fused")
    assert set(ratios(other).values()) == {None}


def test_a_choice_has_ratios_to_the_winner_of_each_point_alone() -> None:
    found = rebased(of_sources(read([str(RESULTS / "h200-choose-article" / "choice.json")])), "quack")
    known = {race.work.tokens: any(ratios(race).values()) for race in found}
    assert known == {1: False, 16: False, 256: False, 2048: False, 8192: True}


@pytest.mark.parametrize(
    ("name", "said"),
    [("fusde", "did you mean 'fused'"), ("hub", "was measured in no file; valid: eager, fused"), ("", "valid: eager")],
)
def test_a_baseline_that_was_not_measured_is_refused(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        rebased([race({"fused": 0.5}, extra=(failed(),))], name)
