"""The activations in fp64, by formulas without cancellation or overflow: the reference for all values.

PyTorch's own functions are what is judged, and no reference: oneDNN's exact GELU is inf for gates above FLT_MAX/2 on
CPUs with AVX-512, and 0.5·g·(1 + tanh z) loses its digits where tanh z is near -1, in fp64 as well.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.spec import Activation

A_TANH: Final = 2 * math.sqrt(2 / math.pi)  # gelu_tanh(g) = g·sigmoid(A·g + B·g³)
B_TANH: Final = A_TANH * 0.044715


def activate(g: Tensor, activation: Activation) -> Tensor:
    """act(g) of an fp64 tensor of any shape, fp64; differentiable as often as one likes.

    Right to 1e-12 of act(g) for every gate that float32 can hold; below 1e-300 it may be 0. So are its derivatives.

    Raises:
        ValueError: `g` is not fp64.
    """
    if g.dtype is not torch.float64:
        raise ValueError(f"a reference is computed in torch.float64, not in {g.dtype}")
    if activation == "gelu_tanh":
        return g * torch.sigmoid(A_TANH * g + B_TANH * g**3)
    if activation == "gelu":
        return 0.5 * g * torch.erfc(-g / math.sqrt(2))
    if activation == "silu":
        return g * torch.sigmoid(g)
    return torch.relu(g)
