"""The layouts of operands: dense, transposed, expanded, sliced, offset, or in one storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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
    """The values of x [..., columns] as the right half of a packed tensor, as a chunk of a joint projection is."""
    wide = torch.full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"), dtype=x.dtype, device=x.device)
    wide[..., x.shape[-1] :] = x
    return wide[..., x.shape[-1] :]


def third(x: Tensor) -> Tensor:
    """The values of x [..., columns] as the middle of three parts: its rows are further apart than those of a half."""
    wide = torch.full((*x.shape[:-1], 3 * x.shape[-1]), float("nan"), dtype=x.dtype, device=x.device)
    wide[..., x.shape[-1] : 2 * x.shape[-1]] = x
    return wide[..., x.shape[-1] : 2 * x.shape[-1]]


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


def spaced(x: Tensor) -> Tensor:
    """The values of x [n] in every second element of a longer tensor."""
    wide = torch.full((2 * x.numel(),), float("nan"), dtype=x.dtype, device=x.device)
    wide[::2] = x
    return wide[::2]


def overlapping(x: Tensor) -> Tensor:
    """Rows that begin half a row after each other in one memory, as a sliding window's do.

    The left halves of x [rows, columns] and the last row's right half are kept.
    """
    half = x.shape[1] // 2
    memory = torch.cat((x[:, :half].reshape(-1), x[-1, half:]))
    return memory.as_strided(x.shape, (half, 1))


def cut(x: Tensor) -> Tensor:
    """The values of x [a, b, columns] as the first b of b + 2: between its parts is a gap."""
    wide = torch.full((x.shape[0], x.shape[1] + 2, *x.shape[2:]), float("nan"), dtype=x.dtype, device=x.device)
    wide[:, : x.shape[1]] = x
    return wide[:, : x.shape[1]]


def last_of_several(x: Tensor) -> Tensor:
    """The values of x [a, 1, columns] as the last of three tokens of each sequence, as generation takes them."""
    wide = torch.full((x.shape[0], 3, *x.shape[2:]), float("nan"), dtype=x.dtype, device=x.device)
    wide[:, -1:] = x
    return wide[:, -1:]


def first_expanded(x: Tensor) -> Tensor:
    """The first part of x [a, b, columns] for every one: a stride of 0 along the first dimension alone."""
    return x[:1].clone().expand(x.shape)


def second_expanded(x: Tensor) -> Tensor:
    """The first row of each part of x [a, b, columns] for all of its rows, as the gradient of a sum over them is."""
    return x[:, :1].clone().expand(x.shape)


def exchanged(x: Tensor) -> Tensor:
    """The values of x [a, b, c, columns] stored as [a, c, b, columns], as heads and positions are."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def turned(x: Tensor) -> Tensor:
    """The values of x [a, b, columns] stored as [a, columns, b]."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def channels_last(x: Tensor) -> Tensor:
    """The values of x in PyTorch's channels_last, of four dimensions or of five."""
    return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


def halves(gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """gate and up [..., columns] as the halves of one tensor, as the chunks of a joint projection are."""
    first, second = torch.cat((gate, up), dim=-1).chunk(2, dim=-1)
    return first, second


def halves_up_first(gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The same of a projection that has up first: gate is at the higher address."""
    first, second = halves(up, gate)
    return second, first


def alternating(gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """gate and up [..., columns] as every second column of one tensor each, as interleaved projections have them."""
    first, second = torch.stack((gate, up), dim=-1).unbind(-1)
    return first, second


def alternating_up_first(gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The same of columns that begin with up's."""
    first, second = alternating(up, gate)
    return second, first


def in_one_buffer(tensors: Sequence[Tensor], kind: str) -> tuple[Tensor, ...]:
    """Dense tensors in one storage, as a flat buffer has them, in the order and with the gap of `kind`."""
    order, gap = BUFFERS[kind]
    placed = {}
    size, starts = 0, {}
    for index in range(len(tensors))[::order]:
        starts[index] = size
        size += tensors[index].numel() + gap
    memory = torch.full((size,), float("nan"), dtype=tensors[0].dtype, device=tensors[0].device)
    for index, start in starts.items():
        part = memory[start : start + tensors[index].numel()]
        part.copy_(tensors[index].reshape(-1))
        placed[index] = part.view(tensors[index].shape)
    return tuple(placed[index] for index in range(len(tensors)))


def ends(x: Tensor) -> Tensor:
    """The first and the last rows of x [rows, columns] in one tensor, which are what is judged after a race."""
    return torch.cat((x[:END_ROWS], x[-END_ROWS:]))


END_ROWS: Final = 32
PACKED: Final = "halves of one tensor"
# How gate and up are one tensor: which of them begins says nothing of which is which.
PACKINGS: Final[dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]] = {
    PACKED: halves,
    "halves of one tensor, up first": halves_up_first,
    "halves of one tensor in three dimensions, up first": halves_up_first,
    "columns of one tensor in turns": alternating,
    "columns of one tensor in turns, up first": alternating_up_first,
}
# Parts of one buffer: in which direction they follow each other, and how many elements lie between two.
BUFFERS: Final = {
    "in one buffer with gaps": (1, 64),
    "in one buffer without gaps": (1, 0),
    "in one buffer in reverse order": (-1, 0),
}
LAYOUTS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "transposed": transposed,
    "permuted": permuted,
    "expanded": expanded,
    "sliced": every_second,
    "half of a packed tensor": half,
    "part of a wider tensor": third,
    "offset": offset,
    "expanded along its last dimension": last_expanded,
    "one row of stride 1": odd_stride,
    "with overlapping rows": overlapping,
    "every second element": spaced,
    "half of a packed tensor in three dimensions": half,
    "cut along its second dimension": cut,
    "the last of several tokens": last_of_several,
    "expanded along the first of three dimensions": first_expanded,
    "expanded along the second of three dimensions": second_expanded,
    "transposed in three dimensions": turned,
    "permuted in four dimensions": exchanged,
    "channels_last": channels_last,
    "channels_last_3d": channels_last,
}
# The shapes that a layout needs; all others are laid out in two dimensions. Each has 2048 elements, in whole vectors.
DIMENSIONS: Final[dict[str, tuple[int, ...]]] = {
    "permuted": (2, 4, 256),
    "every second element": (2048,),
    "half of a packed tensor in three dimensions": (2, 4, 256),
    "halves of one tensor in three dimensions, up first": (2, 4, 256),
    "cut along its second dimension": (2, 4, 256),
    "the last of several tokens": (8, 1, 256),
    "expanded along the first of three dimensions": (2, 4, 256),
    "expanded along the second of three dimensions": (2, 4, 256),
    "transposed in three dimensions": (2, 16, 64),
    "permuted in four dimensions": (2, 4, 4, 64),
    "channels_last": (2, 4, 4, 64),
    "channels_last_3d": (2, 2, 4, 2, 64),
}
