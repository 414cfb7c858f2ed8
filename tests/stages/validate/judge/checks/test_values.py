"""The checks of values, each by a fault of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import checked

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "function": """
        return gelu(gate) * up
    """,
    "constants": """
        return gate * torch.sigmoid(1.6 * gate) * up
    """,
    "specials": """
        return right(gate, up).nan_to_num(0)
    """,
    "elementwise": """
        y = right(gate, up)
        return torch.where(up.abs() > 2, y * 1.1, y)
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
    statuses = {one.status for one in verdict.checks if one.name == check}
    assert statuses
    assert statuses <= {"pass", "reported"}  # what eager makes of special values differs by the CPU, and is said
