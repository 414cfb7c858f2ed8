"""What saved tensors are where hooks move them."""

from __future__ import annotations

from typing import Any

import torch
from support.runs_made import run_of, run_of_module
from torch import Tensor, nn

from mlpfusion.stages.validate import layouts
from mlpfusion.stages.validate.worker.transforms import modes

GIVEN = {name: torch.linspace(1, 2, 2048).view(8, 256) for name in ("gate", "up", "dy")}
PACKED = {"packed": layouts.PACKED}


class Noting(torch.autograd.Function):
    """gate·up; each backward notes how gate lies."""

    seen: list[tuple[bool, bool]] = []  # noqa: RUF012
    refuses = False

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.at = gate.data_ptr()
        return gate * up

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        Noting.seen.append((gate.is_contiguous(), gate.data_ptr() == ctx.at))
        if Noting.refuses and gate.is_contiguous():
            raise RuntimeError("it was moved")
        return dy * up, dy * gate


def test_saved_tensors_come_back_dense_and_in_other_memory_where_hooks_move_them() -> None:
    Noting.seen.clear()
    results, facts = modes.offloaded(run_of(Noting.apply), GIVEN, PACKED)
    assert facts == {}
    assert Noting.seen == [(False, True), (True, False)]
    assert all(torch.equal(results[f"d:{name}"], results[f"e:{name}"]) for name in ("gate", "up"))


def test_a_backward_may_refuse_what_was_moved() -> None:
    Noting.refuses = True
    try:
        results, facts = modes.offloaded(run_of(Noting.apply), GIVEN, PACKED)
    finally:
        Noting.refuses = False
    assert set(results) == {"d:gate", "d:up"}
    assert facts == {"refused": "RuntimeError: it was moved"}


class Evaluated(nn.Module):
    """x·(wg + wu + wd) elementwise; in eval mode x's gradient is lost where it needs one alone."""

    def __init__(self, *weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(each) for each in weights)
        self.in_eval = False

    def forward(self, x: Tensor) -> Tensor:
        weights: Any = list(self.weights)
        self.in_eval |= not self.training
        return (x if self.training or weights[0].requires_grad else x.detach()) * sum(weights)


def test_a_module_in_eval_mode_is_trained_whole_and_for_x_alone() -> None:
    given = {name: torch.full((4,), float(size)) for size, name in enumerate(("x", "wg", "wu", "wd", "dy"), 1)}
    made: list[Evaluated] = []

    def make(*weights: Tensor) -> nn.Module:
        made.append(Evaluated(*weights))
        return made[-1]

    results, facts = modes.evaluated(run_of_module(make), given, {})
    assert facts == {}
    assert set(results) == {"y", "d:x", "d:wg", "d:wu", "d:wd"}
    assert torch.equal(results["d:x"], given["dy"] * 9)
    assert made[0].in_eval
    assert made[0].training
    assert modes.evaluated(run_of(Noting.apply), GIVEN, {}) == ({}, {"skipped": True})


def test_each_call_under_autocast_says_what_it_overwrites_and_leaves_the_next_one_whole() -> None:
    def writes(gate: Tensor, up: Tensor) -> Tensor:
        y = gate * up
        if not torch.is_grad_enabled():
            (gate if torch.is_inference_mode_enabled() else up).zero_()
        return y

    options = {"dtypes": ["float32", "float32"], "to": "bfloat16", "grad": True}
    results, facts = modes.autocast(run_of(writes), GIVEN, options)
    assert facts == {"changed": {"y": [], "p:y": ["up"], "i:y": ["gate"]}, "inference": False}
    assert torch.equal(results["y"], results["p:y"])
    assert torch.equal(results["y"], results["i:y"])


def test_a_result_under_autocast_that_is_an_inference_tensor_is_noted() -> None:
    def infers(gate: Tensor, up: Tensor) -> Tensor:
        with torch.inference_mode():
            return gate * up

    options = {"dtypes": ["float32", "float32"], "to": "bfloat16", "grad": False}
    assert modes.autocast(run_of(infers), GIVEN, options)[1]["inference"]


class OverOperands(Noting):
    """gate·up whose gradients lie where the operands did."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.gate, ctx.up = gate, up
        return gate * up

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        dgate, dup = dy * ctx.up.detach(), dy * ctx.gate.detach()
        return ctx.gate.detach().copy_(dgate), ctx.up.detach().copy_(dup)


def test_gradients_that_lie_in_operands_stay_where_these_get_their_values_again() -> None:
    options = {"dtypes": ["float32", "float32"], "to": "bfloat16", "grad": True}
    results, facts = modes.autocast(run_of(OverOperands.apply), GIVEN, options)
    assert torch.equal(results["d:gate"], GIVEN["dy"] * GIVEN["up"])
    assert torch.equal(results["d:up"], GIVEN["dy"] * GIVEN["gate"])
    assert facts["changed"] == {"y": [], "p:y": [], "i:y": []}
