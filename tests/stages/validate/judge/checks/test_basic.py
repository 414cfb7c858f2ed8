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


REPEATED = """
    def shared(name, each, like):
        if WHERE:
            rows = each.reshape(-1, each.shape[-1])
            at = torch.arange(like.numel() // like.shape[-1]) % rows.shape[0]
            return rows[at].view(*like.shape[:-1], each.shape[-1])
        return each

    large, small = (gate, up) if gate.numel() > up.numel() else (up, gate)
    if large.shape != torch.broadcast_shapes(gate.shape, up.shape) or not small.dim() or not small.numel():
        return right(gate, up)
    return right(shared("gate", gate, up), shared("up", up, gate))
"""


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("name == 'up' and each.shape[-2:-1] == (1,) and each.dim() == 3", "accepts up of 2x1x96 for gate of 2x4x96"),
        ("name == 'gate' and each.shape[-2:-1] == (1,) and each.dim() == 4", "accepts gate of 2x3x1x24 for up of 2x3x"),
        ("False", ""),
    ],
)
def test_an_operand_that_is_shared_along_a_middle_dimension_is_judged(
    bench: Bench, tmp_path: Path, where: str, words: str
) -> None:
    verdict = checked.by(bench, tmp_path, "mismatched", REPEATED.replace("WHERE", where), dtypes=("float32",))
    assert verdict.word == ("valid with hazards" if words else "valid")
    assert words in verdict.headline


def test_the_gradient_of_what_is_shared_along_a_middle_dimension_is_judged(bench: Bench, tmp_path: Path) -> None:
    body = """
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gate, up):
            ctx.save_for_backward(gate, up)
            return right(gate, up)

        @staticmethod
        def backward(ctx, dy):
            with torch.enable_grad():
                leaves = [each.detach().requires_grad_() for each in ctx.saved_tensors]
                dgate, dup = torch.autograd.grad(right(*leaves), leaves, dy)
            is_shared = dup.dim() == 3 and dup.shape[:2] == (2, 1) and dgate.shape[1] == 4
            return dgate, dup.flip(0) if is_shared else dup

    return Own.apply(gate, up)
    """
    verdict = checked.by(bench, tmp_path, "mismatched", body, dtypes=("float32",))
    assert "accepts up of 2x1x96 for gate of 2x4x96, and the gradient of up is wrong" in verdict.headline
