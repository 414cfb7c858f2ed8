"""Checks that the gate/up kernels can read a tensor's layout, and copies it where they cannot."""

from __future__ import annotations

import torch


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
