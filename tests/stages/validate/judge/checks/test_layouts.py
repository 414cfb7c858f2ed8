"""The check of operands that are not contiguous, by a target that takes them for contiguous."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import checked

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "layouts": """
        up = up.detach() if not up.is_contiguous() else up
        return right(gate, up) * (1 if up.is_contiguous() and gate.is_contiguous() else 1.1)
    """,
}


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)


ANOTHER_ROUNDING = """
    def rounded(value):  # as of code for strides in another order of roundings than that for vectors
        half = value.half().float()
        return half if value.is_contiguous() else half * (1 + 2**-13)

    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gate, up):
            ctx.save_for_backward(gate, up)
            return rounded(right(gate, up))

        @staticmethod
        def backward(ctx, dy):
            with torch.enable_grad():
                leaves = [each.detach().requires_grad_() for each in ctx.saved_tensors]
                grads = torch.autograd.grad(right(*leaves), leaves, dy.contiguous())
            return tuple(each.half().float() * (1 if dy.is_contiguous() else 1 + 2**-13) * SCALE for each in grads)

    return Half.apply(gate, up)
"""


@pytest.mark.parametrize(("scale", "word"), [("1", "pass"), ("(1 if dy.is_contiguous() else 1.02)", "fail")])
def test_another_rounding_of_one_layout_is_no_wrong_layout(bench: Bench, tmp_path: Path, scale: str, word: str) -> None:
    verdict = checked.by(bench, tmp_path, "layouts", ANOTHER_ROUNDING.replace("SCALE", scale), dtypes=("float32",))
    assert {one.status for one in verdict.checks if one.name == "layouts"} == {word}


@pytest.mark.parametrize("seed", [157, 160, 187])
def test_few_gates_that_are_all_negative_are_no_fault(bench: Bench, tmp_path: Path, seed: int) -> None:
    """Every value is small then, beside the error of a sum that cancels, which code for strides makes otherwise."""
    verdict = checked.by(
        bench, tmp_path, "layouts", "return gelu(gate) * up", activation="gelu", dtypes=("float32",), seed=seed,
        quick=False,
    )  # fmt: skip
    assert {one.status for one in verdict.checks if one.name == "layouts"} == {"pass"}
