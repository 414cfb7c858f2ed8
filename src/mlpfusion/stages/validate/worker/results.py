"""Takes what a target returned: plain tensors by name, and whether two hold the same bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mlpfusion.errors import MlpfusionError


class NoTensorError(MlpfusionError):
    """A target returned something else than a plain tensor."""


def plain(value: Any) -> Tensor:
    """`value`, which is a dense `torch.Tensor` with memory of its own class and size.

    Raises:
        NoTensorError: it is something else, such as a subclass, which may compute when it is read.
    """
    if not isinstance(value, Tensor):
        raise NoTensorError(f"it returns a {type(value).__name__} where a tensor is expected")
    if type(value) not in {Tensor, nn.Parameter}:
        raise NoTensorError(
            f"it returns a {type(value).__name__}, no plain torch.Tensor: it may compute when it is read"
        )
    if value.layout is not torch.strided or value.device.type == "meta":
        kind = "on the meta device" if value.device.type == "meta" else f"of layout {value.layout}"
        raise NoTensorError(f"it returns a tensor {kind}, whose values are in no memory of its own")
    last = value.storage_offset() + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True)) + 1
    if value.numel() and value.untyped_storage().nbytes() < last * value.element_size():
        raise NoTensorError("it returns a tensor whose memory is smaller than its values are")
    return value


def named(names: tuple[str, ...], grads: tuple[Tensor | None, ...], prefix: str = "d") -> dict[str, Tensor]:
    """Gradients by the names of their operands, without those that are missing."""
    return {f"{prefix}:{name}": plain(grad) for name, grad in zip(names, grads, strict=True) if grad is not None}


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one shape, one dtype and the same bits."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.detach().contiguous().view(whole), b.detach().contiguous().view(whole))
