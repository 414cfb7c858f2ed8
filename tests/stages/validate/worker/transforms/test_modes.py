"""What saved tensors are where hooks move them."""

from __future__ import annotations

from typing import Any

import torch
from support.runs_made import run_of
from torch import Tensor

from mlpfusion.stages.validate.worker.transforms import modes

GIVEN = {name: torch.linspace(1, 2, 2048).view(8, 256) for name in ("gate", "up", "dy")}
PACKED = {"packed": True}


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
