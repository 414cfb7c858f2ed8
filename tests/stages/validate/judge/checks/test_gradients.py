"""The checks of a backward, each by a fault of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support import checked, exams_made

from mlpfusion.stages.validate.channel import Loaded
from mlpfusion.stages.validate.judge.checks import gradients

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.spec import Activation
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


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)


@pytest.mark.parametrize(("activation", "names"), [("gelu_tanh", {"gate", "up", "dy"}), ("relu", {"up", "dy"})])
def test_some_of_each_operand_is_0_and_of_gate_by_its_slope(activation: Activation, names: set[str]) -> None:
    exam = exams_made.exam(Loaded(kind="act_mul", described="a function"))
    exam.activation = activation
    zeros = gradients._with_zeros(exam, {name: torch.ones(7, 127) for name in ("gate", "up", "dy")})
    assert {name: int((value == 0).sum()) for name, value in zeros.items()} == {
        name: 127 if name in names else 0 for name in zeros
    }


@pytest.mark.parametrize(
    ("control", "check", "word", "words"),
    [
        (
            "operands.py:frozen_up_overwritten",
            "partial",
            "not valid",
            "where gate alone need a gradient, the forward over",
        ),
        ("layers.py:FrozenAtTheFirstCall", "partial", "not valid", "no gradient of wg where x alone needed one in an"),
        (
            "layers.py:FrozenWhenBuilt",
            "differentiable",
            "valid with hazards",
            "wg and wu and wd need no gradient when it",
        ),
    ],
)
def test_what_becomes_of_frozen_operands_is_named(
    bench: Bench, control: str, check: str, word: str, words: str
) -> None:
    verdict = checked.of_control(bench, f"blind/{control}", check, "float32")
    assert verdict.word == word
    assert words in verdict.headline


def test_a_backward_that_overwrites_an_operand_where_it_is_frozen_alone_is_a_hazard(
    bench: Bench, tmp_path: Path
) -> None:
    body = """
    class Reusing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gate, up):
            ctx.save_for_backward(gate, up)
            return right(gate, up)

        @staticmethod
        def backward(ctx, dy):
            gate, up = ctx.saved_tensors
            dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
            dup = dy * gelu(gate, approximate="tanh")
            if not ctx.needs_input_grad[0]:
                gate.data.copy_(dup)
            return dgate, dup

    return Reusing.apply(gate, up)
    """
    verdict = checked.by(bench, tmp_path, "partial", body, dtypes=("float32",))
    assert verdict.word == "valid with hazards"
    assert "where up alone need a gradient, the backward overwrites gate" in verdict.headline


@pytest.mark.parametrize("where", ["gate.abs().max() < 1", "bool((gate < 0).all())", "bool((gate >= 0).all())"])
def test_the_slope_of_gates_that_are_all_of_one_range_is_judged(bench: Bench, tmp_path: Path, where: str) -> None:
    body = f"""
    if gate.numel() > 9999 and {where}:
        return right(gate.detach(), up) + 1.02 * (right(gate, up.detach()) - right(gate, up).detach())
    return right(gate, up)
    """
    verdict = checked.by(bench, tmp_path, "backward", body, dtypes=("float32",), quick=False)
    assert "where all gates" in verdict.headline


OWN = """
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gate, up):
            ctx.save_for_backward(gate, up)
            return right(gate, up)

        @staticmethod
        def backward(ctx, dy):
            gate, up = ctx.saved_tensors
            dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
            dup = dy * gelu(gate, approximate="tanh")
            if WHERE:
                dup = dup / 0
            return dgate, dup

    return Own.apply(gate, up)
"""


@pytest.mark.parametrize(
    "where", ["not dy.any()", "not up.any()", "not gate.any()", "up.stride(0) > 2000 < dy.size(0) * 9"]
)
def test_gradients_are_judged_where_an_operand_is_0_and_where_many_rows_have_many_columns(
    bench: Bench, tmp_path: Path, where: str
) -> None:
    body = OWN.replace("WHERE", f"dy.numel() and {where}")
    verdict = checked.by(bench, tmp_path, "backward", body, dtypes=("float32",), quick=False)
    assert verdict.word == "not valid"
    assert "d_up" in verdict.headline
