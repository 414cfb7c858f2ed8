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


OF_NO_ROWS = """
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, wg, wu, wd):
            ctx.save_for_backward(x, wg, wu, wd)
            return right_mlp(x, wg, wu, wd)

        @staticmethod
        def backward(ctx, dy):
            with torch.enable_grad():
                leaves = [each.detach().requires_grad_() for each in ctx.saved_tensors]
                grads = torch.autograd.grad(right_mlp(*leaves), leaves, dy)
            return grads if dy.numel() else (*grads[:3], OF_DOWN)

    return Own.apply(x, wg, wu, wd)
"""


@pytest.mark.parametrize(
    ("of_down", "word", "words"),
    [
        ("grads[3]", "valid", ""),
        (
            "torch.empty_like(wd)",
            "not valid",
            "gradient of wd of an empty batch is nan, as memory is at first, in 8192",
        ),
        ("torch.ones_like(wd)", "not valid", "the gradient of wd of an empty batch is not 0 in 8192 of 8192 elements"),
    ],
)
def test_a_gradient_of_no_rows_is_0(bench: Bench, tmp_path: Path, of_down: str, word: str, words: str) -> None:
    body = OF_NO_ROWS.replace("OF_DOWN", of_down)
    verdict = checked.by(bench, tmp_path, "empty", body, "x, wg, wu, wd", dtypes=("float32",))
    assert verdict.word == word
    assert words in verdict.headline
