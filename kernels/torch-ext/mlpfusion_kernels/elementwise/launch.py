"""Runs act(gate)·up and its backward: picks the kernel, the view and the tile for any operands."""

# The tile is an argument for tuning and tests only.
# ruff: noqa: PLR0917

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton

from ..launching.cached import CACHE_LIMIT, CachedKernel
from . import kernels

_FORWARD_FLAT = CachedKernel(kernels.act_mul_flat_kernel)
_FORWARD_ROWS = CachedKernel(kernels.act_mul_rows_kernel)
_BACKWARD_FLAT = CachedKernel(kernels.act_mul_backward_flat_kernel)
_BACKWARD_ROWS = CachedKernel(kernels.act_mul_backward_rows_kernel)


class Tile(NamedTuple):
    """Elements per program and warps per program."""

    elements: int
    warps: int


# 8 elements a thread: one 128-bit access per 16-bit tensor. On an H200 the best forward of 512 to 8192 elements, 2 to
# 8 warps; backward up to 3% behind 1024 with 8 warps, whose accesses are 64-bit (bench/results/h200-act-mul*.json).
COMPILED_TILE = Tile(1024, 4)
# The interpreter's cost is per program (1024 elements: 75 s for 8192x3072, 65536: 4 s).
INTERPRETED_TILE = Tile(65536, 4)
FORWARD_TILE = INTERPRETED_TILE if _FORWARD_FLAT.interpreted else COMPILED_TILE
BACKWARD_TILE = INTERPRETED_TILE if _BACKWARD_FLAT.interpreted else COMPILED_TILE


class RowPlan(NamedTuple):
    """A 2-D view of tensors with one shape: `rows` of `columns` adjacent elements, in units of `unit`."""

    rows: int
    columns: int
    unit: int
    tile_rows: int
    tile_columns: int

    @property
    def column_tiles(self) -> int:
        """Tiles side by side in a row."""
        return -(-self.columns // self.tile_columns)

    @property
    def programs(self) -> int:
        """Tiles in all."""
        return -(-self.rows // self.tile_rows) * self.column_tiles


def row_stride(tensor: torch.Tensor) -> int | None:
    """The one distance between successive rows of [..., columns], or None if there is no such distance.

    Sizes of 1 have no say, whatever their stride. A result of 0 (an expanded tensor) is only good for reading.
    """
    shape, strides = tensor.shape, tensor.stride()
    if not shape:
        return 1
    if shape[-1] != 1 and strides[-1] != 1:
        return None
    distance: int | None = None
    expected = 0
    for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if size == 1:
            continue
        if distance is None:
            distance, expected = stride, stride * size
        elif stride == expected:
            expected *= size
        else:
            return None
    return shape[-1] if distance is None else distance


@functools.lru_cache(maxsize=CACHE_LIMIT)  # 15 us on a slow host, as much as some whole calls take on the device
def plan_rows(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, elements: int) -> RowPlan:
    """Choose the tile of a 2-D launch over `shape`, whose tensors have these row strides and this smallest itemsize.

    The unit is the largest power of two that divides the row length and all strides, at most 16 bytes of the
    smallest element. The tile is as wide as it can be while no more than 5% of its lanes fall behind the row's end.
    """
    columns = shape[-1] if shape else 1
    rows = 1
    for size in shape[:-1]:
        rows *= size
    unit = 16 // itemsize
    while columns % unit or any(stride % unit for stride in strides):
        unit //= 2
    widest = min(elements, triton.next_power_of_2(columns))
    candidates = [widest >> shift for shift in range(widest.bit_length()) if widest >> shift >= min(widest, 64)]
    padded = {width: -(-columns // width) * width for width in candidates}
    least = min(padded.values())
    width = next(width for width in candidates if padded[width] * 20 <= max(columns * 21, least * 20))
    # Rows beyond the last one would only be masked lanes.
    height = min(elements // width, triton.next_power_of_2(rows))
    return RowPlan(rows, columns, unit, height, width)


def act_mul_forward(gate: torch.Tensor, up: torch.Tensor, activation: str, tile: Tile = FORWARD_TILE) -> torch.Tensor:
    """act(gate)·up of checked operands of one shape and device, in a fresh contiguous tensor.

    Contiguous operands are one flat launch. Operands with one row stride each, such as the halves of a packed
    [M, 2H] tensor, are read where they are. An operand of any other layout is copied first.
    """
    if gate.dtype is up.dtype:
        out = torch.empty_like(gate, memory_format=torch.contiguous_format)
    else:
        out = torch.empty_like(gate, dtype=torch.result_type(gate, up), memory_format=torch.contiguous_format)
    n = out.numel()
    if n == 0:
        return out
    elements, warps = tile
    if gate.is_contiguous() and up.is_contiguous():
        flat_key = (gate.get_device(), gate.dtype, up.dtype, activation, tile)
        _FORWARD_FLAT(flat_key, -(-n // elements), (gate, up, out), (n, activation, elements), warps)
        return out
    gate, gate_stride = _rows_or_copy(gate)
    up, up_stride = _rows_or_copy(up)
    itemsize = min(gate.element_size(), up.element_size())
    plan = plan_rows(out.shape, (gate_stride, up_stride), itemsize, elements)
    constants = (activation, plan.unit, plan.tile_rows, plan.tile_columns)
    scalars = (
        plan.rows,
        plan.columns // plan.unit,
        gate_stride // plan.unit,
        up_stride // plan.unit,
        plan.column_tiles,
    )
    key = (gate.get_device(), gate.dtype, up.dtype, constants, warps)
    _FORWARD_ROWS(key, plan.programs, (gate, up, out), scalars + constants, warps)
    return out


def act_mul_backward(
    dy: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    activation: str,
    want_dgate: bool,
    want_dup: bool,
    tile: Tile = BACKWARD_TILE,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """(dgate, dup) in fresh contiguous tensors of gate's and up's dtypes, None for one that is not wanted.

    Nothing is written but the two results. `dy` may have any strides; those of an expanded scalar cost a copy.
    """
    contiguous = torch.contiguous_format
    dgate = torch.empty_like(gate, memory_format=contiguous) if want_dgate else None
    dup = torch.empty_like(up, memory_format=contiguous) if want_dup else None
    n = gate.numel()
    if n == 0 or not (want_dgate or want_dup):
        return dgate, dup
    elements, warps = tile
    # An unwanted result has no memory; the kernel gets some pointer there and does not use it.
    outputs = (gate if dgate is None else dgate, up if dup is None else dup)
    flags = (activation, want_dgate, want_dup)
    dtypes = (gate.get_device(), dy.dtype, gate.dtype, up.dtype)
    if dy.is_contiguous() and gate.is_contiguous() and up.is_contiguous():
        key = (dtypes, flags, tile)
        _BACKWARD_FLAT(key, -(-n // elements), (dy, gate, up, *outputs), (n, *flags, elements), warps)
        return dgate, dup
    dy, dy_stride = _rows_or_copy(dy)
    gate, gate_stride = _rows_or_copy(gate)
    up, up_stride = _rows_or_copy(up)
    strides = (dy_stride, gate_stride, up_stride)
    plan = plan_rows(gate.shape, strides, min(t.element_size() for t in (dy, gate, up)), elements)
    constants = (*flags, plan.unit, plan.tile_rows, plan.tile_columns)
    scalars = (
        plan.rows,
        plan.columns // plan.unit,
        *(stride // plan.unit for stride in strides),
        plan.column_tiles,
    )
    _BACKWARD_ROWS((dtypes, constants, warps), plan.programs, (dy, gate, up, *outputs), scalars + constants, warps)
    return dgate, dup


def _rows_or_copy(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    stride = row_stride(tensor)
    if stride is not None:
        return tensor, stride
    copy = tensor.contiguous()
    return copy, copy.shape[-1]
