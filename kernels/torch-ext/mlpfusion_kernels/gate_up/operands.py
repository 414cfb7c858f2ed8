"""The operands of a gated MLP: its parameters, what the kernels can read in place, and copies of the rest."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Weights(NamedTuple):
    """The parameters of a gated MLP: gate and up [H, D] with biases [H], down [D, H] with bias [D]; biases may be None.

    The gate and up biases are both there or both None.
    """

    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    gate_bias: torch.Tensor | None = None
    up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None


def unreadable(weights: Weights, *, addresses: bool = True) -> str | None:
    """Why the kernels cannot read these weights in place, or None.

    Without `addresses`, which tensors that a compiler traces do not have, as far as shapes and strides say.
    """
    for name, weight in (("gate", weights.gate), ("up", weights.up), ("down", weights.down)):
        if weight.dim() == 2 and _has_loose_rows(weight):
            return (
                f"{name}_weight must have rows of adjacent elements, apart from each other and at distances that are "
                f"multiples of 16 bytes, got strides {tuple(weight.stride())}"
            )
        if addresses and weight.data_ptr() % 16:
            return f"{name}_weight must start at a multiple of 16 bytes, not at address {weight.data_ptr():#x}"
    one = weights.gate is weights.up or (addresses and weights.gate.data_ptr() == weights.up.data_ptr())
    return "gate_weight and up_weight share one memory" if one and weights.gate.numel() else None


def _has_loose_rows(weight: torch.Tensor) -> bool:
    step = weight.stride(0)
    if step * weight.element_size() % 16:
        return True
    # What is contiguous, as most are, is asked no more: this runs at each call.
    return not weight.is_contiguous() and (weight.stride(1) != 1 or step < weight.shape[1])


def with_adjacent_biases(weights: Weights) -> Weights:
    """The weights with each bias that has gaps between its elements, or repeats one, copied: kernels read no stride."""
    biases = weights[3:]
    if all(bias is None or bias.stride() == (1,) for bias in biases):
        return weights
    return Weights(*weights[:3], *(None if bias is None else bias.contiguous() for bias in biases))


def aligned_rows(tensor: torch.Tensor) -> torch.Tensor:
    """[M, K] as it is, if its rows are of adjacent elements and start at multiples of 16 bytes, else a copy."""
    stride, step = tensor.stride(0), tensor.stride(1)
    if step == 1 and stride >= tensor.shape[1] and not (stride * tensor.element_size() | tensor.data_ptr()) & 15:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """[M, H] as it is, if it is contiguous and starts at a multiple of 16 bytes, else a copy."""
    if tensor.is_contiguous() and not tensor.data_ptr() & 15:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def distance(gate: torch.Tensor, up: torch.Tensor) -> int | None:
    """Elements from gate's start to up's, if both may be read through one descriptor, else None.

    That takes equal strides, and a distance that fits the descriptor's 40-bit stride and is a multiple of 16 bytes,
    which both addresses are already.
    """
    distance_bytes = up.data_ptr() - gate.data_ptr()
    if gate.stride() != up.stride() or abs(distance_bytes) >= 1 << 40:
        return None
    return distance_bytes // gate.element_size()
