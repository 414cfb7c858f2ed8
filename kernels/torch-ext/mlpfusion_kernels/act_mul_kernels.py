"""The Triton kernels of act(gate)·up with their costs, their tiles and the choice between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .activations import BACKWARD_FLOPS, FORWARD_FLOPS, activate, activate_backward
from .launch import CachedKernel


def _forward_cost(grid: object, metadata: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Name, flops and bytes of one forward launch: reads gate and up, writes out."""
    n = args["out"].numel()
    streams = sum(args[name].element_size() for name in ("gate", "up", "out"))
    return {"name": metadata.name, "flops32": FORWARD_FLOPS[args["ACTIVATION"]] * n + n, "bytes": streams * n}


def _backward_cost(grid: object, metadata: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Name, flops and bytes of one backward launch: reads dy, gate and up, writes the wanted gradients."""
    n = args["dy"].numel()
    streams = sum(args[name].element_size() for name in ("dy", "gate", "up"))
    streams += args["dgate"].element_size() * args["WANT_DGATE"] + args["dup"].element_size() * args["WANT_DUP"]
    return {"name": metadata.name, "flops32": BACKWARD_FLOPS[args["ACTIVATION"]] * n + 2 * n, "bytes": streams * n}


# In all four kernels full tiles are accessed without a mask and only the last ones with it: a mask over a size that is
# no multiple of 16 would turn every access of the tile scalar. Offsets are 64-bit from the program id on.


@triton.jit(launch_metadata=_forward_cost, do_not_specialize=["n"])
def act_mul_flat_kernel(gate, up, out, n: tl.int64, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = act(gate[i])·up[i] for i < n, in fp32 with one rounding at the store."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        g = tl.load(gate + start + offsets).to(tl.float32)
        u = tl.load(up + start + offsets).to(tl.float32)
        y = activate(g, ACTIVATION) * u
        tl.store(out + start + offsets, y.to(out.dtype.element_ty))
    else:
        inside = offsets < n - start
        g = tl.load(gate + start + offsets, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(up + start + offsets, mask=inside, other=0.0).to(tl.float32)
        y = activate(g, ACTIVATION) * u
        tl.store(out + start + offsets, y.to(out.dtype.element_ty), mask=inside)


@triton.jit(
    launch_metadata=_forward_cost, do_not_specialize=["rows", "units", "gate_stride", "up_stride", "column_tiles"]
)
def act_mul_rows_kernel(
    gate,
    up,
    out,
    rows: tl.int64,
    units: tl.int64,
    gate_stride: tl.int64,
    up_stride: tl.int64,
    column_tiles: tl.int32,
    ACTIVATION: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """out[r, c] = act(gate[r, c])·up[r, c]: rows apart by a stride, columns adjacent, out contiguous.

    The row length and the strides come in units of UNIT elements, which tells the compiler that they are multiples.
    """
    pid = tl.program_id(0)
    row = (pid // column_tiles).to(tl.int64) * ROWS
    column = (pid % column_tiles).to(tl.int64) * COLUMNS
    columns = units * UNIT
    r = row + tl.arange(0, ROWS)[:, None].to(tl.int64)
    c = column + tl.arange(0, COLUMNS)[None, :]
    gate += r * (gate_stride * UNIT) + c
    up += r * (up_stride * UNIT) + c
    out += r * columns + c
    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        g = tl.load(gate).to(tl.float32)
        u = tl.load(up).to(tl.float32)
        y = activate(g, ACTIVATION) * u
        tl.store(out, y.to(out.dtype.element_ty))
    else:
        inside = (r < rows) & (c < columns)
        g = tl.load(gate, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(up, mask=inside, other=0.0).to(tl.float32)
        y = activate(g, ACTIVATION) * u
        tl.store(out, y.to(out.dtype.element_ty), mask=inside)


@triton.jit(launch_metadata=_backward_cost, do_not_specialize=["n"])
def act_mul_backward_flat_kernel(
    dy,
    gate,
    up,
    dgate,
    dup,
    n: tl.int64,
    ACTIVATION: tl.constexpr,
    WANT_DGATE: tl.constexpr,
    WANT_DUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dgate = dy·up·act'(gate) and dup = dy·act(gate) for i < n, each where wanted."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        v = tl.load(dy + offsets).to(tl.float32)
        g = tl.load(gate + offsets).to(tl.float32)
        u = tl.load(up + offsets).to(tl.float32)
        a, dg = activate_backward(g, v * u, ACTIVATION)
        if WANT_DGATE:
            tl.store(dgate + offsets, dg.to(dgate.dtype.element_ty))
        if WANT_DUP:
            tl.store(dup + offsets, (v * a).to(dup.dtype.element_ty))
    else:
        inside = offsets < n
        v = tl.load(dy + offsets, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(gate + offsets, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(up + offsets, mask=inside, other=0.0).to(tl.float32)
        a, dg = activate_backward(g, v * u, ACTIVATION)
        if WANT_DGATE:
            tl.store(dgate + offsets, dg.to(dgate.dtype.element_ty), mask=inside)
        if WANT_DUP:
            tl.store(dup + offsets, (v * a).to(dup.dtype.element_ty), mask=inside)


@triton.jit(
    launch_metadata=_backward_cost,
    do_not_specialize=["rows", "units", "dy_stride", "gate_stride", "up_stride", "column_tiles"],
)
def act_mul_backward_rows_kernel(
    dy,
    gate,
    up,
    dgate,
    dup,
    rows: tl.int64,
    units: tl.int64,
    dy_stride: tl.int64,
    gate_stride: tl.int64,
    up_stride: tl.int64,
    column_tiles: tl.int32,
    ACTIVATION: tl.constexpr,
    WANT_DGATE: tl.constexpr,
    WANT_DUP: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The backward of `act_mul_rows_kernel`; dgate and dup are contiguous."""
    pid = tl.program_id(0)
    row = (pid // column_tiles).to(tl.int64) * ROWS
    column = (pid % column_tiles).to(tl.int64) * COLUMNS
    columns = units * UNIT
    r = row + tl.arange(0, ROWS)[:, None].to(tl.int64)
    c = column + tl.arange(0, COLUMNS)[None, :]
    dy += r * (dy_stride * UNIT) + c
    gate += r * (gate_stride * UNIT) + c
    up += r * (up_stride * UNIT) + c
    dense = r * columns + c
    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        v = tl.load(dy).to(tl.float32)
        g = tl.load(gate).to(tl.float32)
        u = tl.load(up).to(tl.float32)
        a, dg = activate_backward(g, v * u, ACTIVATION)
        if WANT_DGATE:
            tl.store(dgate + dense, dg.to(dgate.dtype.element_ty))
        if WANT_DUP:
            tl.store(dup + dense, (v * a).to(dup.dtype.element_ty))
    else:
        inside = (r < rows) & (c < columns)
        v = tl.load(dy, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(gate, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(up, mask=inside, other=0.0).to(tl.float32)
        a, dg = activate_backward(g, v * u, ACTIVATION)
        if WANT_DGATE:
            tl.store(dgate + dense, dg.to(dgate.dtype.element_ty), mask=inside)
        if WANT_DUP:
            tl.store(dup + dense, (v * a).to(dup.dtype.element_ty), mask=inside)


_FORWARD_FLAT = CachedKernel(act_mul_flat_kernel)
_FORWARD_ROWS = CachedKernel(act_mul_rows_kernel)
_BACKWARD_FLAT = CachedKernel(act_mul_backward_flat_kernel)
_BACKWARD_ROWS = CachedKernel(act_mul_backward_rows_kernel)


class Tile(NamedTuple):
    """Elements per program and warps per program."""

    elements: int
    warps: int


# 16 elements a thread: two 128-bit accesses per 16-bit tensor in flight, 32 registers forward and 40 backward, no spill.
# The interpreter's cost is per program (1024 elements: 75 s for 8192x3072, 65536: 4 s).
FORWARD_TILE = Tile(65536, 4) if _FORWARD_FLAT.interpreted else Tile(2048, 4)
BACKWARD_TILE = Tile(65536, 4) if _BACKWARD_FLAT.interpreted else Tile(2048, 4)


class RowPlan(NamedTuple):
    """A 2-D view of tensors with one shape: `rows` of `columns` adjacent elements, in units of `unit`."""

    rows: int
    columns: int
    unit: int
    tile_rows: int
    tile_columns: int

    @property
    def column_tiles(self) -> int:
        return -(-self.columns // self.tile_columns)

    @property
    def programs(self) -> int:
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


def plan_rows(shape: Sequence[int], strides: Sequence[int], itemsize: int, elements: int) -> RowPlan:
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
    dtype = gate.dtype
    if up.dtype is not dtype:
        dtype = torch.result_type(gate, up)
    out = torch.empty_like(gate, dtype=dtype, memory_format=torch.contiguous_format)
    n = out.numel()
    if n == 0:
        return out
    elements, warps = tile
    if gate.is_contiguous() and up.is_contiguous():
        key = (gate.get_device(), gate.dtype, up.dtype, activation, tile)
        _FORWARD_FLAT(key, -(-n // elements), (gate, up, out), (n, activation, elements), warps)
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
