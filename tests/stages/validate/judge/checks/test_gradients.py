"""The checks of a backward, each by a fault of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import checked

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "differentiable": """
        return right(gate, up).detach()
    """,
    "backward": """
        return right(gate.detach() + (gate - gate.detach()) * 1.5, up)
    """,
    "partial": """
        return right(gate.detach() if not up.requires_grad else gate, up)
    """,
}


@pytest.mark.parametrize("check", WRONG)
def test_each_check_finds_the_fault_that_it_is_for(bench: Bench, tmp_path: Path, check: str) -> None:
    verdict = checked.by(bench, tmp_path, check, WRONG[check])
    assert verdict.word != "valid"
    assert check in verdict.headline


@pytest.mark.parametrize("check", WRONG)
def test_and_none_in_what_is_right(bench: Bench, tmp_path: Path, check: str) -> None:
    verdict = checked.by(bench, tmp_path, check, "return right(gate, up)")
    assert {one.status for one in verdict.checks if one.name == check} == {"pass"}
