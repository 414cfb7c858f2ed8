"""Two parameters of one shape lying next to each other in memory, and read as one tensor without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mlpfusion.errors import BackendUnavailableError

if TYPE_CHECKING:
    from torch import Tensor


class Pair:
    """Two parameters of one shape that are made adjacent here, and the two as one tensor.

    As long as the joint tensor is held its memory belongs to nobody else, so equal addresses mean equal tensors.
    """

    def __init__(self, backend: str, first: Tensor, second: Tensor) -> None:
        _make_adjacent(backend, first, second)
        self._backend = backend
        self._both = joined(backend, first, second)
        self._first, self._second = first.data_ptr(), second.data_ptr()

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        """[2H, ...] without a copy, if the two still are where they were.

        Raises:
            BackendUnavailableError: one of them has moved.
        """
        if first.data_ptr() != self._first or second.data_ptr() != self._second:
            raise _moved(self._backend)
        return self._both


def joined(backend: str, first: Tensor, second: Tensor) -> Tensor:
    """Two adjacent tensors [H, ...] as one [2H, ...] without a copy; it takes no part in autograd.

    Raises:
        BackendUnavailableError: they do not lie next to each other in one storage.
    """
    if not _adjacent(first, second):
        raise _moved(backend)
    return first.detach().as_strided((2 * first.shape[0], *first.shape[1:]), first.stride())


def _moved(backend: str) -> BackendUnavailableError:
    return BackendUnavailableError(
        backend,
        f"gate and up no longer lie next to each other in memory; call set_backend({backend!r}) again, or restore and "
        "swap again",
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
