"""What the probes of transformed calls share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.runs_made import run_of
from torch import Tensor

from mlpfusion.stages.validate.worker.targets.loader import Bound
from mlpfusion.stages.validate.worker.transforms import alone

GIVEN = {name: torch.linspace(1, 2, 2048).view(8, 256) for name in ("gate", "up", "dy")}
WITHIN: dict[str, dict[str, Any]] = {
    "compile": {"backend": "eager"},
    "checkpoint": {},
    "autocast": {"to": "bfloat16"},
}


def product(gate: Tensor, up: Tensor) -> Tensor:
    return gate * up


def for_both(gate: Tensor, up: Tensor) -> Tensor:
    return gate * up if gate.requires_grad and up.requires_grad else gate.detach() * up.detach()


@pytest.mark.parametrize("within", WITHIN)
def test_each_operand_trains_alone(within: str) -> None:
    results, _ = alone.alone(run_of(product), GIVEN, {"within": within, **WITHIN[within]})
    assert set(results) == {"d:gate", "d:up"}
    assert torch.equal(results["d:gate"], GIVEN["dy"] * GIVEN["up"])


@pytest.mark.parametrize("within", WITHIN)
def test_a_gradient_that_comes_only_beside_others_is_left_out(within: str) -> None:
    assert alone.alone(run_of(for_both), GIVEN, {"within": within, **WITHIN[within]}) == ({}, {})


class InPlace(torch.autograd.Function):
    """gate·up whose backward writes gradients over the operands that it saved, and gives these."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.gate, ctx.up = gate, up
        return gate * up

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.gate.detach(), ctx.up.detach()
        dgate, dup = dy * up, dy * gate
        return gate.copy_(dgate), up.copy_(dup)


@pytest.mark.parametrize("within", ["checkpoint", "autocast"])
def test_what_a_backward_writes_over_operands_spoils_no_later_gradient(within: str) -> None:
    results, _ = alone.alone(run_of(InPlace.apply), GIVEN, {"within": within, **WITHIN[within]})
    assert torch.equal(results["d:gate"], GIVEN["dy"] * GIVEN["up"])
    assert torch.equal(results["d:up"], GIVEN["dy"] * GIVEN["gate"])


def test_operands_that_were_overwritten_are_named_once_and_have_their_values_again() -> None:
    leaves = tuple(GIVEN[name].clone() for name in ("gate", "up"))
    operands = alone.Operands(run_of(product), Bound(product, leaves, leaves))
    leaves[1].mul_(2)
    assert operands.changed() == ["up"]
    assert torch.equal(leaves[1], GIVEN["up"])
    assert operands.changed() == []
