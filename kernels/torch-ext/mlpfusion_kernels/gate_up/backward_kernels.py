"""The portable Triton kernels of the gradients of gate and up: dY·Wd with the backward of act·mul in its epilogue."""

# Kernels are called by position, and their parameters have Triton's types, not Python's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ..activations import BACKWARD_FLOPS, activate, activate_backward
from .kernels import add_product, column_parts, gemm_flops, tile_of


def gate_up_backward_cost(grid: object, metadata: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Name, flops and bytes of one launch: reads dy, the down weight, gate and up, writes dgate, dup and product."""
    product = getattr(args["product"], "base", args["product"])  # a tensor descriptor holds its tensor
    m, h = product.shape
    d = args["depth"] * args.get("UNIT", 1)
    itemsize = product.element_size()
    return {
        "name": metadata.name,
        **gemm_flops(itemsize, 2 * m * h * d, (BACKWARD_FLOPS[args["ACTIVATION"]] + 3) * m * h),
        "bytes": itemsize * (m * d + d * h + 5 * m * h),
    }


@triton.jit
def gate_up_backward_epilogue(v, gate, up, ACTIVATION: tl.constexpr):
    """(dgate, dup, product) in gate's dtype from the fp32 gradient v of the product, and the stored gate and up.

    The product is computed as the forward does it, from `activate`, so it has the same bits.
    """
    # Nothing exceeds infinity, which LLVM knows and Triton does not: what seems to depend on v is computed in v's own
    # layout, and not a second time in that of a load or a store.
    never = v > float("inf")
    g = tl.where(never, v, gate.to(tl.float32))
    u = tl.where(never, v, up.to(tl.float32))
    a = activate(g, ACTIVATION)
    _, dg = activate_backward(g, v * u, ACTIVATION)
    return dg.to(gate.dtype), (v * a).to(gate.dtype), (a * u).to(gate.dtype)


@triton.jit
def load_parts(tensor, r, column, rows, columns, BLOCK_N: tl.constexpr, PARTS: tl.constexpr):
    """The PARTS parts, from left to right, of the tile of a contiguous [rows, columns] tensor at rows r."""
    c = column + tl.arange(0, BLOCK_N // PARTS)
    row = tensor + r[:, None] * columns
    in_rows = (r < rows)[:, None]
    parts = (tl.load(row + c[None, :], mask=in_rows & (c < columns)[None, :], other=0.0),)
    for _ in tl.static_range(1, PARTS):
        c += BLOCK_N // PARTS
        parts += (tl.load(row + c[None, :], mask=in_rows & (c < columns)[None, :], other=0.0),)
    return parts


@triton.jit(
    launch_metadata=gate_up_backward_cost,
    do_not_specialize=[
        "rows",
        "depth",
        "columns",
        "dy_stride",
        "down_weight_stride",
        "dgate_up_stride",
        "row_tiles",
        "column_tiles",
    ],
)
def gate_up_backward_pointer_kernel(
    dy,
    down_weight,
    gate,
    up,
    dgate_up,
    product,
    rows: tl.int64,
    depth: tl.int32,
    columns: tl.int32,
    dy_stride: tl.int64,
    down_weight_stride: tl.int64,
    dgate_up_stride: tl.int64,
    row_tiles: tl.int32,
    column_tiles: tl.int32,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    UNIT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PARTS: tl.constexpr,
):
    """One tile [BLOCK_M, BLOCK_N] of dgate, dup and product by pointers.

    dy is [M, D], down_weight [D, H], with rows of adjacent elements; gate, up and product are contiguous [M, H];
    dgate_up [M, 2H] gets dgate in its columns below H and dup in those from H on. `depth` (D), `columns` (H) and the
    row strides come in units of UNIT elements. PARTS: steps of the epilogue, as in `gate_up_pointer_kernel`. Grid: one
    program per tile.
    """
    row_tile, column_tile = tile_of(tl.program_id(0), row_tiles, column_tiles, GROUP)
    d_size = depth * UNIT
    h_size = columns * UNIT
    r = row_tile.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = column_tile * BLOCK_N
    n = column + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    in_row = (n < h_size)[None, :]
    # Rows past the last one read it again: what comes of them is not stored.
    dy_tile = dy + tl.minimum(r, rows - 1)[:, None] * (dy_stride * UNIT) + k[None, :]
    weight_tile = down_weight + k[:, None] * (down_weight_stride * UNIT) + n[None, :]
    v = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, d_size, BLOCK_K):
        inside = k < d_size - start
        a = tl.load(dy_tile, mask=inside[None, :], other=0.0)
        b = tl.load(weight_tile, mask=inside[:, None] & in_row, other=0.0)
        v = add_product(v, a, b, PRECISION)
        dy_tile += BLOCK_K
        weight_tile += BLOCK_K * (down_weight_stride * UNIT)
    gates = load_parts(gate, r, column, rows, h_size, BLOCK_N, PARTS)
    ups = load_parts(up, r, column, rows, h_size, BLOCK_N, PARTS)
    parts = column_parts(v, BLOCK_M, BLOCK_N, PARTS)
    for part in tl.static_range(PARTS):
        c = column + part * (BLOCK_N // PARTS) + tl.arange(0, BLOCK_N // PARTS)
        stored = (r < rows)[:, None] & (c < h_size)[None, :]
        dg, du, y = gate_up_backward_epilogue(parts[part], gates[part], ups[part], ACTIVATION)
        tl.store(product + r[:, None] * h_size + c[None, :], y, mask=stored)
        apart = r[:, None] * (dgate_up_stride * UNIT) + c[None, :]
        tl.store(dgate_up + apart, dg, mask=stored)
        tl.store(dgate_up + h_size + apart, du, mask=stored)


@triton.jit(
    launch_metadata=gate_up_backward_cost,
    do_not_specialize=["rows", "depth", "columns", "row_tiles", "column_tiles"],
)
def gate_up_backward_tma_kernel(
    dy,
    down_weight,
    dgate,
    dup,
    product,
    gate,
    up,
    rows: tl.int64,
    depth: tl.int32,
    columns: tl.int32,
    row_tiles: tl.int32,
    column_tiles: tl.int32,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    UNIT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PARTS: tl.constexpr,
):
    """All tiles of dgate, dup and product by tensor descriptors (TMA).

    dy is a descriptor of [M, D] with blocks [BLOCK_M, BLOCK_K], down_weight one of [D, H] with blocks
    [BLOCK_K, BLOCK_N]; dgate and dup are of the two halves of one [M, 2H] tensor and product of [M, H], all with blocks
    [BLOCK_M, BLOCK_N // PARTS]. gate and up are pointers to contiguous [M, H]: such loads are in flight together, but
    each one by a descriptor is waited for. `depth` (D) and `columns` (H) come in units of UNIT elements. Grid: any
    number of programs, which share the tiles.
    """
    tl.assume(depth > 0)  # else the compiler adds a second epilogue for a loop that never runs
    d_size = depth * UNIT
    h_size = columns * UNIT
    for tile in tl.range(tl.program_id(0), row_tiles * column_tiles, tl.num_programs(0), flatten=True):
        row_tile, column_tile = tile_of(tile, row_tiles, column_tiles, GROUP)
        row = row_tile * BLOCK_M
        column = column_tile * BLOCK_N
        v = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, d_size, BLOCK_K):
            a = dy.load([row, start])
            b = down_weight.load([start, column])
            v = add_product(v, a, b, PRECISION)
        r = row.to(tl.int64) + tl.arange(0, BLOCK_M)
        gates = load_parts(gate, r, column, rows, h_size, BLOCK_N, PARTS)
        ups = load_parts(up, r, column, rows, h_size, BLOCK_N, PARTS)
        parts = column_parts(v, BLOCK_M, BLOCK_N, PARTS)
        for part in tl.static_range(PARTS):
            first = column + part * (BLOCK_N // PARTS)
            dg, du, y = gate_up_backward_epilogue(parts[part], gates[part], ups[part], ACTIVATION)
            dgate.store([row, first], dg)
            dup.store([row, first], du)
            product.store([row, first], y)
