"""What is raced together, from every kind of file that has rows of backends."""

from __future__ import annotations

from support.paths import RESULTS
from support.races_made import emulated, failed, foresight, profile, source

from mlpfusion.stages.tabulate.races import of_sources
from mlpfusion.stages.tabulate.sources import read


def test_a_profile_is_one_race_and_each_row_has_its_standing() -> None:
    (found,) = of_sources([source(profile({"fused": 0.5}, extra=(failed(), emulated())))])
    assert {each.name: each.standing for each in found.entries} == {
        "eager": "measured",
        "fused": "measured",
        "hub": "failed",
        "triton": "emulated",
    }


def test_races_come_by_mode_and_tokens_whatever_the_names_of_files() -> None:
    given = [
        source(profile({}, n, mode=mode), f"{n}{mode}") for n in (256, 16, 2048) for mode in ("training", "inference")
    ]
    order = [(race.work.mode, race.work.tokens) for race in of_sources(given)]
    assert order == sorted(order)


def test_profiles_stand_for_the_points_of_a_choice_that_was_made_from_them() -> None:
    folder = read([str(RESULTS / "h200-choose-article")])
    alone = [each for each in folder if each.name == "choice.json"]
    assert {race.source.name for race in of_sources(alone)} == {"choice.json"}
    both = of_sources(folder)
    assert len(both) == len(of_sources(alone)) == 5
    assert "choice.json" not in {race.source.name for race in both}


def test_a_file_of_several_profiles_has_several_races() -> None:
    found = of_sources(read([str(RESULTS / "h200-traffic.json")]))
    assert {race.part for race in found} == {"article", "large"}


def test_predicted_rows_are_on_their_card_and_never_measured() -> None:
    (found,) = of_sources([source(foresight())])
    assert found.device == "NVIDIA Z1"
    assert [each.standing for each in found.entries] == ["predicted", "predicted", "unavailable"]


def test_other_kinds_have_no_races() -> None:
    assert of_sources(read([str(RESULTS / "h200-prove-gemma-2b-fused.json"), str(RESULTS / "h200-groups.json")])) == ()
