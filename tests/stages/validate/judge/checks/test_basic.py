"""The checks of a call and its result, each by a fault of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import checked

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "runs": """
        return right(gate, up)[..., :-1]
    """,
    "inputs-kept": """
        return right(gate, up.mul_(2)) / 2
    """,
    "deterministic": """
        return right(gate, up) * (1 + torch.rand_like(up) / 4)
    """,
    "positions": """
        y = right(gate, up)
        return y * (torch.arange(y.numel()) % 5 != 0).view_as(y)
    """,
    "rows-alone": """
        return right(gate, up) * (1 + gate.shape[0] / 100)
    """,
    "empty": """
        if not gate.numel():
            raise RuntimeError("nothing to do")
        return right(gate, up)
    """,
    "aliased": """
        return right(gate, up) * (2 if gate.data_ptr() == up.data_ptr() else 1)
    """,
}


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)


@pytest.mark.parametrize(("operand", "least"), [("gate", 0), ("up", 0), ("gate", 9999)])
def test_an_operand_that_nobody_else_holds_is_the_caller_s_to_keep(
    bench: Bench, tmp_path: Path, operand: str, least: int
) -> None:
    body = f"""
    import sys
    y = right(gate, up)
    if not torch.is_grad_enabled() and sys.getrefcount({operand}) == 2 and gate.numel() > {least}:
        {operand}.copy_(y)
    return y
    """
    verdict = checked.by(bench, tmp_path, "inputs-kept", body, dtypes=("float32",))
    assert f"the forward overwrites {operand}, to which the caller has no name" in verdict.headline
