"""The checks of a whole MLP, each by a fault of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import checked

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "mlp-values": """
        return right_mlp(x, wg, wu, wd) * 1.1
    """,
    "mlp-gradients": """
        return right_mlp(x, wg.detach(), wu, wd) + 0 * wg.sum()
    """,
}


@pytest.mark.parametrize("check", WRONG)
def test_each_check_finds_the_fault_that_it_is_for(bench: Bench, tmp_path: Path, check: str) -> None:
    verdict = checked.by(bench, tmp_path, check, WRONG[check], "x, wg, wu, wd")
    assert verdict.word != "valid"
    assert check in verdict.headline


@pytest.mark.parametrize("check", WRONG)
def test_and_none_in_what_is_right(bench: Bench, tmp_path: Path, check: str) -> None:
    verdict = checked.by(bench, tmp_path, check, "return right_mlp(x, wg, wu, wd)", "x, wg, wu, wd")
    assert {one.status for one in verdict.checks if one.name == check} == {"pass"}
