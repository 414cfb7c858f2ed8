"""The Triton kernels of act(gate)·up, each with the flops and bytes that one launch of it costs."""

# Kernels are called by position, and their parameters have Triton's types, not Python's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ..activations import BACKWARD_FLOPS, FORWARD_FLOPS, activate, activate_backward


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
