"""Reads two parameters of one shape that are adjacent in memory as one tensor, without a copy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from mlpfusion.errors import BackendUnavailableError

if TYPE_CHECKING:
    from torch import Tensor


class Pair:
    """Two parameters of one shape that are made adjacent here, and the two as one tensor.

    As long as the joint tensor is held its memory belongs to nobody else: a tensor of this address, shape and dtype
    whose elements are adjacent is the same.
    """

    def __init__(self, backend: str, first: Tensor, second: Tensor) -> None:
        _make_adjacent(backend, first, second)
        self._backend = backend
        self._both = joined(backend, first, second)
        self._first, self._second = first.data_ptr(), second.data_ptr()
        self._shape, self._dtype = first.shape, first.dtype

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        """[2H, ...] without a copy, if the two still are what they were.

        Raises:
            BackendUnavailableError: one of them has moved, or is turned, cut or of another dtype.
        """
        if (
            first.data_ptr() != self._first
            or second.data_ptr() != self._second
            or not (first.is_contiguous() and second.is_contiguous())
            or not (first.shape == self._shape == second.shape)
            or not (first.dtype is self._dtype is second.dtype)
        ):
            raise _apart(self._backend, first)
        return self._both


def joined_biases(backend: str, gate: Tensor | None, up: Tensor | None, pair: Pair | None = None) -> Tensor | None:
    """The biases of gate and up [H] as one [2H] without a copy, or None where neither is; a `pair` of them is faster.

    Raises:
        BackendUnavailableError: there is only one, or they do not lie next to each other in one storage.
    """
    if gate is None and up is None:
        return None
    if gate is None or up is None:
        found = "up_proj" if gate is None else "gate_proj"
        raise BackendUnavailableError(
            backend,
            f"only one of gate_proj and up_proj has a bias, {found}: give both one or neither, and call "
            f"set_backend({backend!r}) again",
        )
    return joined(backend, gate, up) if pair is None else pair.joined(gate, up)


def joined(backend: str, first: Tensor, second: Tensor) -> Tensor:
    """Two adjacent tensors [H, ...] as one [2H, ...] without a copy; it takes no part in autograd.

    Raises:
        BackendUnavailableError: they do not lie next to each other in one storage.
    """
    if not _adjacent(first, second):
        raise _apart(backend, first)
    # Of a single row PyTorch does not keep the stride, which may be anything.
    strides = (math.prod(first.shape[1:]), *first.stride()[1:])
    return first.detach().as_strided((2 * first.shape[0], *first.shape[1:]), strides)


def _apart(backend: str, first: Tensor) -> BackendUnavailableError:
    what = "biases" if first.dim() == 1 else "weights"
    return BackendUnavailableError(
        backend,
        f"the {what} of gate_proj and up_proj are new or changed, and no longer adjacent in memory; "
        f"call set_backend({backend!r}) again, or restore and swap again",
    )


def _make_adjacent(backend: str, first: Tensor, second: Tensor) -> None:
    """Re-point two parameters of one shape to the halves of one new buffer, values kept."""
    if _adjacent(first, second):
        return
    if first.data_ptr() == second.data_ptr():
        raise BackendUnavailableError(backend, "gate_proj and up_proj share one weight")
    for tensor in (first, second):
        # Twice the tensor is a buffer of our own, of which the other half has gone.
        if tensor.untyped_storage().nbytes() not in (tensor.nbytes, 2 * tensor.nbytes):
            raise BackendUnavailableError(
                backend, "a weight is part of a larger buffer (flattened parameters?), from which it would be parted"
            )
    with torch.no_grad():
        buffer = torch.cat((first.detach(), second.detach()))
    rows = first.shape[0]
    first.data, second.data = buffer[:rows], buffer[rows:]


def _adjacent(first: Tensor, second: Tensor) -> bool:
    return (
        first.is_contiguous()
        and second.is_contiguous()
        and first.shape == second.shape
        and first.dtype == second.dtype
        and first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        and second.storage_offset() == first.storage_offset() + first.numel()
    )
