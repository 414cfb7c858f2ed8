"""A gated MLP on tensors by PyTorch's own products, with its backward written down."""

# Tensors are passed in the order of the formula.
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from mlpfusion_kernels.activations import activate_backward_reference, activate_reference
from torch.nn import functional

if TYPE_CHECKING:
    from mlpfusion_kernels import Weights
    from mlpfusion_kernels.gradients import Wanted
    from torch import Tensor


def forward(x: Tensor, weights: Weights, activation: str, keep: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(y [..., D], gate and up [M, H]) of x [..., D]: what three layers around the activation give, to the bit."""
    rows = x.reshape(-1, x.shape[-1])
    gate, up = _preactivations(rows, weights)
    y = functional.linear(activate_reference(gate, activation) * up, weights.down, weights.down_bias)
    return y.view(*x.shape[:-1], y.shape[-1]), *((gate, up) if keep else (None, None))


def backward(
    dy: Tensor,
    x: Tensor,
    gate: Tensor | None,
    up: Tensor | None,
    weights: Weights,
    activation: str,
    wanted: Wanted,
) -> tuple[Tensor | None, ...]:
    """The wanted gradients of (x, *weights); gate and up [M, H] are computed again where they are None."""
    rows, dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    if gate is None or up is None:
        gate, up = _preactivations(rows, weights)
    dgate, dup, product = _middle(dy, gate, up, weights, activation)
    return (
        (dgate @ weights.gate + dup @ weights.up).view(x.shape) if wanted.x else None,
        dgate.T @ rows if wanted.gate else None,
        dup.T @ rows if wanted.up else None,
        dy.T @ product if wanted.down else None,
        dgate.sum(0) if wanted.gate_bias else None,
        dup.sum(0) if wanted.up_bias else None,
        dy.sum(0) if wanted.down_bias else None,
    )


def middle(
    dy: Tensor, x: Tensor, gate: Tensor | None, up: Tensor | None, weights: Weights, activation: str
) -> tuple[Tensor, Tensor]:
    """(dgate beside dup [M, 2H], product [M, H]) of dy and x [M, D]; gate and up are computed again where None."""
    if gate is None or up is None:
        gate, up = _preactivations(x, weights)
    dgate, dup, product = _middle(dy, gate, up, weights, activation)
    return torch.cat((dgate, dup), 1), product


def unreadable(weights: Weights, *, addresses: bool) -> None:
    """PyTorch reads weights however they lie."""


def _preactivations(rows: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    gate = functional.linear(rows, weights.gate, weights.gate_bias)
    return gate, functional.linear(rows, weights.up, weights.up_bias)


def _middle(dy: Tensor, gate: Tensor, up: Tensor, weights: Weights, activation: str) -> tuple[Tensor, Tensor, Tensor]:
    acted, dproduct = activate_reference(gate, activation), dy @ weights.down
    return activate_backward_reference(gate, dproduct * up, activation), dproduct * acted, acted * up
