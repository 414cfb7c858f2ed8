"""The checks of a backward, each by a fault of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support import checked, exams_made

from mlpfusion.stages.validate.channel import Loaded
from mlpfusion.stages.validate.judge.checks import gradients

if TYPE_CHECKING:
    from mlpfusion.spec import Activation

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
