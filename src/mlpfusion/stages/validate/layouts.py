"""The layouts of operands: dense, transposed, expanded, sliced, offset, or in one storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable


def transposed(x: Tensor) -> Tensor:
    """The values of x [rows, columns] stored column by column."""
    return x.t().contiguous().t()


def permuted(x: Tensor) -> Tensor:
    """The values of x [a, b, columns] stored as [b, a, columns]: its rows have no one distance."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def expanded(x: Tensor) -> Tensor:
    """The first row of x for every row: a row stride of 0."""
    return x[:1].clone().expand(x.shape)


def every_second(x: Tensor) -> Tensor:
    """The values of x in every second column of a wider tensor."""
    wide = torch.full((x.shape[0], 2 * x.shape[1]), float("nan"), dtype=x.dtype, device=x.device)
    wide[:, ::2] = x
    return wide[:, ::2]


def half(x: Tensor) -> Tensor:
    """The values of x as the right half of a packed tensor, as a chunk of a joint projection is."""
    wide = torch.full((x.shape[0], 2 * x.shape[1]), float("nan"), dtype=x.dtype, device=x.device)
    wide[:, x.shape[1] :] = x
    return wide[:, x.shape[1] :]


def offset(x: Tensor) -> Tensor:
    """The values of x from the third element of its storage on: contiguous, but not aligned to 16 bytes."""
    memory = torch.full((x.numel() + 3,), float("nan"), dtype=x.dtype, device=x.device)
    memory[3:] = x.reshape(-1)
    return memory[3:].view(x.shape)


def odd_stride(x: Tensor) -> Tensor:
    """The first row of x alone, with a stride of 1 along its only row, as slicing leaves it."""
    return torch.as_strided(x[:1].clone(), (1, x.shape[1]), (1, 1))


def last_expanded(x: Tensor) -> Tensor:
    """The first column of x for every column: a stride of 0 along the last dimension."""
    return x[..., :1].clone().expand(x.shape)


def halves(gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """gate and up [..., columns] as the halves of one tensor, as the chunks of a joint projection are."""
    first, second = torch.cat((gate, up), dim=-1).chunk(2, dim=-1)
    return first, second


PACKED: Final = "halves of one tensor"
LAYOUTS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "transposed": transposed,
    "permuted": permuted,
    "expanded": expanded,
    "sliced": every_second,
    "half of a packed tensor": half,
    "offset": offset,
    "expanded along its last dimension": last_expanded,
    "one row of stride 1": odd_stride,
}
