"""The check that all of a result is written and nothing around it, by faults that some operands alone bring out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import checked
from support.targets_made import verdict_of

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "written": """
        y = torch.empty_like(gate)
        part = slice(0, gate.numel() // 2)
        y.view(-1)[part] = right(gate, up).reshape(-1)[part]
        return y
    """,
}


test_the_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)


@pytest.mark.parametrize(("name", "result"), [("up", "the result"), ("dy", "the gradient of gate")])
def test_what_is_left_out_where_an_operand_is_zero_is_named(
    bench: Bench, tmp_path: Path, name: str, result: str
) -> None:
    forward = "torch.empty_like(gate) if not up.any() else right(gate, up)" if name == "up" else "right(gate, up)"
    backward = "torch.empty_like(gate) if not dy.any() else dy * up" if name == "dy" else "dy * up"
    path = tmp_path / "target.py"
    path.write_text(
        checked.HEAD
        + f"""
class Skips(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return {forward}

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return {backward}, dy * gate

def target(gate, up):
    return Skips.apply(gate, up)
""",
        encoding="utf-8",
    )
    verdict = verdict_of(bench, f"{path}:target", only=("written",), dtypes=("float32",), quick=False)
    assert f"elements of {result} is written where {name} is 0" in verdict.headline
