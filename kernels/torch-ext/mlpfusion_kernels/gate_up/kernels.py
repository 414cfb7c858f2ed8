"""The portable Triton kernels of act(x·Wgᵀ + bg)·(x·Wuᵀ + bu): one wide product, the activation in its epilogue."""

# Kernels are called by position, and their parameters have Triton's types, not Python's.
# ruff: noqa: PLR0917, RET505  # Triton wants the else of a constant condition
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ..activations import FORWARD_FLOPS, activate


def gate_up_cost(grid: object, metadata: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Name, flops and bytes of one launch: reads x and both weights once, writes product, and gate and up if stored."""
    product = getattr(args["product"], "base", args["product"])  # a tensor descriptor holds its tensor
    m, h = product.shape
    k = args["depth"] * args.get("UNIT", 1)
    itemsize = product.element_size()
    outputs = 3 if args["STORE_PREACT"] else 1
    return {
        "name": metadata.name,
        **gemm_flops(itemsize, 4 * m * h * k, (FORWARD_FLOPS[args["ACTIVATION"]] + 1) * m * h),
        "bytes": itemsize * (m * k + 2 * h * k + outputs * m * h),
    }


def gemm_flops(itemsize: int, products: int, epilogue: int) -> dict[str, int]:
    """The flops of a launch by the width of their operands: the products in the storage dtype, the epilogue in fp32."""
    return {"flops32": products + epilogue} if itemsize == 4 else {"flops16": products, "flops32": epilogue}


@triton.jit
def tile_of(program, row_tiles, column_tiles, GROUP: tl.constexpr):
    """Row and column of a tile, in tiles: GROUP rows of them, column after column, so that both operands stay in L2."""
    width = GROUP * column_tiles
    first = program // width * GROUP
    height = tl.minimum(row_tiles - first, GROUP)
    local = program % width
    return first + local % height, local // height


@triton.jit
def add_product(acc, a, b, PRECISION: tl.constexpr):
    """acc + a·b; without TF32 the products of fp32 blocks are summed up apart, and acc gets their sum.

    Matrix instructions do so by themselves. A chain of fused multiply-adds over all of the depth K has an error that
    grows with √K, beyond twice eager's, which the GPU tests allow; in blocks it grows with √(block) + √(K / block).
    """
    if a.dtype == tl.float32 and PRECISION == "ieee":
        # The compiler would add acc first and so make it one chain again, but not where max_num_imprecise_acc is set,
        # which means nothing for fp32.
        acc += tl.dot(a, b, input_precision=PRECISION, max_num_imprecise_acc=1)
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    return acc


@triton.jit
def column_halves(block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The left and the right half of a [ROWS, COLUMNS] block; a thread keeps what it has."""
    return block.reshape(ROWS, 2, COLUMNS // 2).permute(0, 2, 1).split()


@triton.jit
def column_parts(block, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr):
    """The 1, 2 or 4 parts of a [ROWS, COLUMNS] block from left to right."""
    if PARTS == 1:
        return (block,)
    else:
        left, right = column_halves(block, ROWS, COLUMNS)
        if PARTS == 2:
            return left, right
        else:
            tl.static_assert(PARTS == 4, "PARTS must be 1, 2 or 4")
            first, second = column_halves(left, ROWS, COLUMNS // 2)
            third, fourth = column_halves(right, ROWS, COLUMNS // 2)
            return first, second, third, fourth


@triton.jit
def gate_up_epilogue(
    g,
    u,
    gate_bias,
    up_bias,
    c,
    columns,
    dtype: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    """(product, gate, up) in the storage dtype from the fp32 sums of gate and up and their columns c.

    gate and up are rounded before the activation, so the product is act·mul of what is stored, bit for bit.
    """
    if HAS_BIAS:
        g += tl.load(gate_bias + c, mask=c < columns, other=0.0).to(tl.float32)[None, :]
        u += tl.load(up_bias + c, mask=c < columns, other=0.0).to(tl.float32)[None, :]
    g = g.to(dtype)
    u = u.to(dtype)
    y = activate(g.to(tl.float32), ACTIVATION) * u.to(tl.float32)
    return y.to(dtype), g, u


@triton.jit(
    launch_metadata=gate_up_cost,
    do_not_specialize=[
        "rows",
        "depth",
        "columns",
        "x_stride",
        "gate_weight_stride",
        "up_weight_stride",
        "row_tiles",
        "column_tiles",
    ],
)
def gate_up_pointer_kernel(
    x,
    gate_weight,
    up_weight,
    gate_bias,
    up_bias,
    product,
    gate,
    up,
    rows: tl.int64,
    depth: tl.int32,
    columns: tl.int32,
    x_stride: tl.int64,
    gate_weight_stride: tl.int64,
    up_weight_stride: tl.int64,
    row_tiles: tl.int32,
    column_tiles: tl.int32,
    ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    STORE_PREACT: tl.constexpr,
    PRECISION: tl.constexpr,
    UNIT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PARTS: tl.constexpr,
):
    """One tile [BLOCK_M, BLOCK_N] of product [M, H], and of gate and up [M, H] if STORE_PREACT, by pointers.

    x is [M, K], the weights [H, K], with rows of adjacent elements; the results are contiguous. `depth` (K), `columns`
    (H) and the row strides come in units of UNIT elements, which tells the compiler that they are multiples.
    The weights' tile has BLOCK_N rows of gate_weight and below them as many of up_weight, each with a pointer of its
    own. The epilogue goes through the tile in PARTS steps, which need fewer registers than one. Grid: one program per
    tile. Pointers to what the constants leave out are not followed.
    """
    row_tile, column_tile = tile_of(tl.program_id(0), row_tiles, column_tiles, GROUP)
    k_size = depth * UNIT
    h_size = columns * UNIT
    column = column_tile * BLOCK_N
    r = row_tile.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.arange(0, 2 * BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    # Rows past the last one read it again: what comes of them is not stored, and no mask is needed for them.
    weight_row = tl.minimum(column + n % BLOCK_N, h_size - 1).to(tl.int64)
    weight = tl.where(
        n < BLOCK_N,
        gate_weight + weight_row * (gate_weight_stride * UNIT),
        up_weight + weight_row * (up_weight_stride * UNIT),
    )
    weight_tile = weight[:, None] + k[None, :]
    x_tile = x + tl.minimum(r, rows - 1)[:, None] * (x_stride * UNIT) + k[None, :]
    wide = tl.zeros((BLOCK_M, 2 * BLOCK_N), tl.float32)
    for start in range(0, k_size, BLOCK_K):
        inside = (k < k_size - start)[None, :]
        a = tl.load(x_tile, mask=inside, other=0.0)
        b = tl.load(weight_tile, mask=inside, other=0.0)
        wide = add_product(wide, a, b.T, PRECISION)
        x_tile += BLOCK_K
        weight_tile += BLOCK_K
    left, right = column_halves(wide, BLOCK_M, 2 * BLOCK_N)
    gates = column_parts(left, BLOCK_M, BLOCK_N, PARTS)
    ups = column_parts(right, BLOCK_M, BLOCK_N, PARTS)
    dtype: tl.constexpr = product.dtype.element_ty
    for part in tl.static_range(PARTS):
        c = column + part * (BLOCK_N // PARTS) + tl.arange(0, BLOCK_N // PARTS)
        y, g, u = gate_up_epilogue(gates[part], ups[part], gate_bias, up_bias, c, h_size, dtype, ACTIVATION, HAS_BIAS)
        place = r[:, None] * h_size + c[None, :]
        stored = (r < rows)[:, None] & (c < h_size)[None, :]
        tl.store(product + place, y, mask=stored)
        if STORE_PREACT:
            tl.store(gate + place, g, mask=stored)
            tl.store(up + place, u, mask=stored)


@triton.jit(launch_metadata=gate_up_cost, do_not_specialize=["depth", "columns", "row_tiles", "column_tiles"])
def gate_up_wide_kernel(
    x,
    weights,
    product,
    gate,
    up,
    gate_bias,
    up_bias,
    depth: tl.int32,
    columns: tl.int32,
    row_tiles: tl.int32,
    column_tiles: tl.int32,
    ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    STORE_PREACT: tl.constexpr,
    SWAPPED: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PARTS: tl.constexpr,
):
    """All tiles of product [M, H], and of gate and up [M, H] if STORE_PREACT, by tensor descriptors (TMA).

    x is a descriptor of [M, K] with blocks [BLOCK_M, BLOCK_K]; weights one of [2, H, K] with blocks
    [2, BLOCK_N, BLOCK_K], whose outer stride is the distance between the two weights: gate first, or up first where
    SWAPPED; product, gate and up have blocks [BLOCK_M, BLOCK_N // PARTS], the steps of the epilogue: more of them need
    fewer registers and less shared memory. Outside its tensor a descriptor reads zeros and stores nothing. The biases
    are pointers, `depth` (K) and `columns` (H) in elements. Grid: any number of programs, which share the tiles.
    """
    tl.assume(depth > 0)  # else the compiler adds a second epilogue for a loop that never runs
    for tile in tl.range(tl.program_id(0), row_tiles * column_tiles, tl.num_programs(0), flatten=True):
        row_tile, column_tile = tile_of(tile, row_tiles, column_tiles, GROUP)
        row = row_tile * BLOCK_M
        column = column_tile * BLOCK_N
        wide = tl.zeros((BLOCK_M, 2 * BLOCK_N), tl.float32)
        for start in range(0, depth, BLOCK_K):
            a = x.load([row, start])
            b = weights.load([0, column, start]).reshape(2 * BLOCK_N, BLOCK_K)
            wide = add_product(wide, a, b.T, PRECISION)
        left, right = column_halves(wide, BLOCK_M, 2 * BLOCK_N)
        gates = column_parts(right if SWAPPED else left, BLOCK_M, BLOCK_N, PARTS)
        ups = column_parts(left if SWAPPED else right, BLOCK_M, BLOCK_N, PARTS)
        for part in tl.static_range(PARTS):
            first = column + part * (BLOCK_N // PARTS)
            c = first + tl.arange(0, BLOCK_N // PARTS)
            y, g, u = gate_up_epilogue(
                gates[part], ups[part], gate_bias, up_bias, c, columns, product.dtype, ACTIVATION, HAS_BIAS
            )
            product.store([row, first], y)
            if STORE_PREACT:
                gate.store([row, first], g)
                up.store([row, first], u)
