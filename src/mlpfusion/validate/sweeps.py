"""The sweep over every gate value: what it gives, and how gate values get through a whole MLP unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from mlpfusion.errors import MlpfusionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.validate.channel import Tensors


class WrongShapeError(MlpfusionError):
    """An MLP's result has another shape than its x."""


class Swept(NamedTuple):
    """y for gate values and a constant up, each [N]."""

    y: Tensor
    gate: Tensor
    up: Tensor


def rows_of(tensor: Tensor, columns: int) -> Tensor:
    """A tensor [N] as rows [.., columns], the last one padded with zeros."""
    rows = torch.zeros(-(-tensor.numel() // columns) * columns, dtype=tensor.dtype)
    rows[: tensor.numel()] = tensor
    return rows.view(-1, columns)


def through_mlp(gate: Tensor, up: float, sizes: tuple[int, int], run: Callable[[Tensors], Tensor]) -> Swept:
    """Gate values as x of an MLP whose weights pass them on unchanged: products with ones and zeros are exact.

    The last column carries up. `sizes` are the MLP's hidden_size and intermediate_size.

    Raises:
        WrongShapeError: the result has another shape than x.
    """
    d, h = sizes
    largest = torch.finfo(gate.dtype).max
    size = gate.double().abs()
    inside = size * up < largest * (1 - torch.finfo(gate.dtype).eps)  # inf·0 would spoil its row
    if gate.dtype is not torch.float16:  # a matrix product may take subnormals, those of float32's exponent, for 0
        inside &= (size >= 4 * torch.finfo(gate.dtype).tiny) | (size == 0)
    gate = gate[inside]
    values = rows_of(gate, d - 1)
    x = torch.cat((values, torch.full((values.shape[0], 1), up, dtype=gate.dtype)), dim=1)
    passes = torch.zeros(h, d, dtype=gate.dtype)
    passes[:d] = torch.eye(d, dtype=gate.dtype)
    ones = torch.zeros(h, d, dtype=gate.dtype)
    ones[:, -1] = 1.0
    y = run({"x": x, "wg": passes, "wu": ones, "wd": passes.T.contiguous()})
    if y.shape != x.shape:
        raise WrongShapeError(f"it returns {tuple(y.shape)} for x of {tuple(x.shape)}")
    kept = y[:, : d - 1].reshape(-1)[: gate.numel()]
    return Swept(kept, gate, torch.full_like(gate, up))
