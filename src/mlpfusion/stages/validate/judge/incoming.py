"""Makes the gradients that reach a result: of any size, as a loss scale makes them, and with nan and infinities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors

# Powers of two of dy: to float16's smallest number; in the others as far as no product of three factors overflows or is
# subnormal, which hardware may take for 0.
POWERS: Final[dict[Dtype, tuple[int, int]]] = {"bfloat16": (-60, 100), "float16": (-24, 14), "float32": (-60, 100)}
MOST: Final = 2.0**14  # of dy·u in float16, where PyTorch's own operators overflow beyond four times as much
STRANGE: Final = (math.inf, -math.inf, math.nan, 0.0, -0.0)
EVERY: Final = 16  # of so many elements one is strange


def wide(up: Tensor, dtype: Dtype, generator: torch.Generator) -> Tensor:
    """dy for `up`, of its shape: random signs and mantissas, powers of two over all of POWERS."""
    powers = torch.randint(*POWERS[dtype], up.shape, generator=generator)
    signs = torch.randint(0, 2, up.shape, generator=generator) * 2 - 1
    dy = torch.ldexp(signs * (1 + torch.rand(up.shape, generator=generator, dtype=torch.float64)), powers)
    if dtype == "float16":
        most = MOST / up.double().abs().clamp(min=1)
        dy = dy.clamp(-most, most)
    return dy.to(up.dtype)


def strange(dy: Tensor, generator: torch.Generator) -> Tensor:
    """The same with one of STRANGE in every sixteenth element, shuffled."""
    values = torch.tensor(STRANGE, dtype=torch.float64).to(dy.dtype)
    flat = dy.reshape(-1).clone()
    at = torch.randperm(flat.numel(), generator=generator)[: flat.numel() // EVERY]
    flat[at] = values[torch.arange(at.numel()) % values.numel()]
    return flat.view(dy.shape)


def lost(grad: Tensor, right: Tensor, dy: Tensor) -> Tensor:
    """Where a gradient is finite although dy and, in fp64, the gradient itself are not, as a mask."""
    return grad.isfinite() & ~dy.isfinite() & ~right.isfinite()


def scaled(given: Tensors, dtype: Dtype, *, large: bool) -> Tensors:
    """Operands of an MLP with dy times a power of two: a loss scale of 65,536 or 2^-12; in float16 512 or 2^-6.

    All of dy has one scale, since a power of two changes no relative rounding error: results are as near to fp64 as
    without it. Of rows with scales of their own the few largest would decide, and the largest error of few is luck.
    """
    power = (9 if large else -6) if dtype == "float16" else (16 if large else -12)
    return given | {"dy": torch.ldexp(given["dy"], torch.tensor(power))}
