"""The gradients of a gated MLP: by products from the middle of its backward, and as an operator returns them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.fx.experimental import proxy_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Middle = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


class Wanted(NamedTuple):
    """Which gradients of (x, *Weights) a backward must give."""

    x: bool
    gate: bool
    up: bool
    down: bool
    gate_bias: bool
    up_bias: bool
    down_bias: bool


def is_traced() -> bool:
    """Whether a compiler traces this call: AOTAutograd, with forward and backward at once, or Dynamo.

    Dynamo does so for compiled autograd, and cannot trace the question for a mode.
    """
    return torch.compiler.is_dynamo_compiling() or proxy_tensor.get_proxy_mode() is not None


def is_nested() -> bool:
    """Whether a graph inside another one is traced, as that of `torch.compiler.nested_compile_region`.

    Its results must begin where their memory begins: Inductor adds the offset of another one twice, and reads what
    lies behind it.
    """
    if torch.compiler.is_dynamo_compiling():
        return False
    tracer = getattr(proxy_tensor, "_CURRENT_MAKE_FX_TRACER", None)
    return getattr(tracer, "parent_tracer", None) is not None


def without_autocast(kind: str) -> contextlib.AbstractContextManager[object]:
    """A context in which autocast casts nothing on this kind of device."""
    if kind != "meta" and torch.is_autocast_enabled(kind):  # of "meta" it raises
        return torch.autocast(kind, enabled=False)
    return contextlib.nullcontext()


def by_middle(
    middle: Middle,
    dy: torch.Tensor,
    x: torch.Tensor,
    gate_up: tuple[torch.Tensor, torch.Tensor],
    wanted: Wanted,
    *,
    addresses: bool = True,
) -> tuple[torch.Tensor | None, ...]:
    """The wanted gradients of (x, *Weights), each in x's dtype, for dy and x [..., D]; the others are None.

    `gate_up` are the weights of the two. `middle(dy, x)`, of both as [M, D], gives the gradients of gate and up side by
    side, [M, 2H], and the product [M, H] that the down projection got; the rest is products of PyTorch. The gradients
    of the two weights may be the halves of one tensor, but in a nested graph. Without `addresses`, which tensors that a
    compiler traces do not have, weights that are adjacent are not seen as such.
    """
    # Whoever calls backward under autocast gets the precision of the forward.
    with without_autocast(dy.device.type):
        rows, dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        dgate_up, product = middle(dy, rows)
        h = product.shape[1]
        nested = is_nested()
        dx = dgate = dup = dgate_bias = dup_bias = None
        if wanted.x:
            dx = _times_both(dgate_up, *gate_up, addresses).view(x.shape)
        if wanted.gate and wanted.up and not nested:
            dgate, dup = (dgate_up.T @ rows).chunk(2)  # one product, of which each gradient is a half
        else:
            dgate = dgate_up[:, :h].T @ rows if wanted.gate else None
            dup = dgate_up[:, h:].T @ rows if wanted.up else None
        ddown = dy.T @ product if wanted.down else None
        if nested:
            dgate_bias, dup_bias = dgate_up[:, :h].sum(0), dgate_up[:, h:].sum(0)
        elif wanted.gate_bias or wanted.up_bias:
            dgate_bias, dup_bias = dgate_up.sum(0).chunk(2)
        ddown_bias = dy.sum(0) if wanted.down_bias else None
    found = (dx, dgate, dup, ddown, dgate_bias, dup_bias, ddown_bias)
    return tuple(each if want else None for each, want in zip(found, wanted, strict=True))


def _times_both(dgate_up: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, addresses: bool) -> torch.Tensor:
    """dgate·gate + dup·up: one product where the weights are seen to be adjacent, else a second that accumulates.

    A second product reads and writes the [M, D] sum once more, which is small beside its operands. In a graph the sum
    stays apart, so that the compiler can add with what follows.
    """
    h = gate.shape[0]
    if not addresses:
        return dgate_up[:, :h] @ gate + dgate_up[:, h:] @ up
    if _are_adjacent(gate, up):
        return dgate_up @ gate.as_strided((2 * h, gate.shape[1]), gate.stride())
    return (dgate_up[:, :h] @ gate).addmm_(dgate_up[:, h:], up)


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
    if not _are_adjacent(first, second):
        return torch.cat((first, second))
    return first.as_strided((first.shape[0] + second.shape[0], *first.shape[1:]), first.stride())


def _are_adjacent(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether both are contiguous, in one memory, and the second begins where the first ends."""
    return (
        first.is_contiguous()
        and second.is_contiguous()
        and first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        and second.storage_offset() == first.storage_offset() + first.numel()
    )


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, contiguous, copied if its memory holds more than it."""
    whole = tensor.nbytes == tensor.untyped_storage().nbytes() and tensor.is_contiguous()
    return tensor if whole else tensor.clone(memory_format=torch.contiguous_format)
