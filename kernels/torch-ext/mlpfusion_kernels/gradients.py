"""The gradients of a gated MLP as an operator returns them: those of gate and up as one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


class Wanted(NamedTuple):
    """Which gradients of (x, *Weights) a backward must give."""

    x: bool
    gate: bool
    up: bool
    down: bool
    gate_bias: bool
    up_bias: bool
    down_bias: bool


def joined(found: Sequence[torch.Tensor | None], like: torch.Tensor) -> list[torch.Tensor]:
    """Seven gradients of (x, *Weights) as five: of x, gate and up, down, the biases of gate and up, and of down's.

    An operator's results may share no memory, while the gradients of gate and up usually are the halves of one product:
    as one result they need no copy. Each is contiguous and has memory of its own; one that is None is empty, of
    `like`'s dtype and device.
    """
    dx, dgate, dup, ddown, dgate_bias, dup_bias, ddown_bias = found
    five = dx, _together(dgate, dup), ddown, _together(dgate_bias, dup_bias), ddown_bias
    return [like.new_empty(0) if each is None else _alone(each) for each in five]


def parted(five: Sequence[torch.Tensor], wanted: Wanted) -> tuple[torch.Tensor | None, ...]:
    """The seven gradients of what `joined` returned, None where one is not wanted: of gate and up as views."""
    dx, weights, ddown, biases, ddown_bias = five
    gate, up = weights.chunk(2) if wanted.gate and wanted.up else (weights, weights)
    gate_bias, up_bias = biases.chunk(2) if wanted.gate_bias and wanted.up_bias else (biases, biases)
    seven = dx, gate, up, ddown, gate_bias, up_bias, ddown_bias
    return tuple(each if want else None for each, want in zip(seven, wanted, strict=True))


def shapes(operands: Sequence[torch.Tensor | None], wanted: Wanted) -> list[tuple[int, ...]]:
    """The shapes of what `joined` returns of the wanted gradients of these operands (x, *Weights)."""
    there = [operand if want else None for operand, want in zip(operands, wanted, strict=True)]
    made: list[tuple[int, ...]] = []
    for each in ((there[0],), (there[1], there[2]), (there[3],), (there[4], there[5]), (there[6],)):
        some = [one for one in each if one is not None]
        made.append((sum(one.shape[0] for one in some), *some[0].shape[1:]) if len(some) > 1 else _shape(some))
    return made


def _shape(some: list[torch.Tensor]) -> tuple[int, ...]:
    return tuple(some[0].shape) if some else (0,)


def _together(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    adjacent = (
        first.is_contiguous()
        and second.is_contiguous()
        and first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        and second.storage_offset() == first.storage_offset() + first.numel()
    )
    if not adjacent:
        return torch.cat((first, second))
    return first.as_strided((first.shape[0] + second.shape[0], *first.shape[1:]), first.stride())


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, contiguous, copied if its memory holds more than it."""
    whole = tensor.nbytes == tensor.untyped_storage().nbytes() and tensor.is_contiguous()
    return tensor if whole else tensor.clone(memory_format=torch.contiguous_format)
