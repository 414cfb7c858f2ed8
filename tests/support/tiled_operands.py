"""Operands of the tiled kernels with gaps between their rows, and what their results are held against."""

from __future__ import annotations

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

BLOCK_M, BLOCK_N, BLOCK_K = BLOCKS = (32, 32, 32)
GROUP = 2
FORMS = ("pointer", "wide")
DTYPES = (torch.float32, torch.float16)  # the interpreter's bf16 products are garbage


def rows_apart(generator: torch.Generator, shape: tuple[int, int], gap: int, dtype: torch.dtype) -> torch.Tensor:
    """Random values of this shape, nan in the `gap` elements between its rows."""
    whole = torch.full((shape[0], shape[1] + gap), float("nan"), dtype=dtype)
    whole[:, : shape[1]] = torch.randn(shape, generator=generator).to(dtype)
    return whole[:, : shape[1]]


def largest_unit(*sizes: int) -> int:
    unit = 16
    while any(size % unit for size in sizes):
        unit //= 2
    return unit


def tiles(m: int, h: int) -> tuple[int, int]:
    return -(-m // BLOCK_M), -(-h // BLOCK_N)


def canary(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """[rows, columns] of nan, before one row more that nobody may write."""
    return torch.full((rows + 1, columns), float("nan"), dtype=dtype)[:rows]


def assert_canary_lives(tensor: torch.Tensor) -> None:
    rows, columns = tensor.shape
    after = tensor.as_strided((columns,), (1,), tensor.storage_offset() + rows * tensor.stride(0))
    assert after.isnan().all()


def descriptor(tensor: torch.Tensor, *block: int) -> TensorDescriptor:
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), list(block))


def assert_near(got: torch.Tensor, want: torch.Tensor) -> None:
    """Within four roundings of the storage dtype and what a sum of 80 products loses in fp32, relative to 1 or more."""
    assert got.isfinite().all()
    worst = ((got.double() - want).abs() / want.abs().clamp(min=1)).max().item()
    assert worst <= 4 * torch.finfo(got.dtype).eps + 16 * torch.finfo(torch.float32).eps, worst


def assert_same_bits(got: torch.Tensor, want: torch.Tensor) -> None:
    integer = torch.int16 if want.element_size() == 2 else torch.int32
    assert got.dtype == want.dtype
    assert torch.equal(got.contiguous().view(integer), want.contiguous().view(integer))
