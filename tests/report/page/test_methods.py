"""How files were measured, cited and are measured again."""

from __future__ import annotations

import pytest
from support.paths import RESULTS

from mlpfusion.report.page.methods import methods, others
from mlpfusion.report.page.sources import gather


def test_a_profile_has_all_of_them() -> None:
    (source,) = gather([str(RESULTS / "h200-profile.json")])
    (found,) = methods([source])
    assert found.digest == source.digest
    assert "device events around a plain call" in found.measured
    assert "driver 580.159.04" in found.measured
    assert source.digest in found.cite
    assert "mlpfusion profile --like h200-profile.json --json rerun.json" in (found.again or "")


def test_a_choice_says_its_terms() -> None:
    found = methods(gather([str(RESULTS / "h200-choose-article")]))
    assert "interleaved rounds for each number of tokens" in found[0].measured
    assert found[0].again is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("h200-groups.json", True),
        ("predict.json", True),
        ("h200-profile.json", False),
        ("h200-prove-gemma-2b-fused.json", False),
    ],
)
def test_what_no_table_is_of_is_shown_as_its_verb_does(name: str, shown: bool) -> None:
    found = others(gather([str(RESULTS / name)]))
    assert bool(found) == shown
    assert all(each.text.strip() for each in found)
