"""The Triton kernels of a gated MLP for a few tokens, where reading the weights is all the work."""

# Kernels are called by position, and their parameters have Triton's types, not Python's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ..activations import FORWARD_FLOPS, activate
from .kernels import add_product


def _gate_up_cost(grid: object, metadata: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Name, flops and bytes of one launch: reads x and both weights, writes the product (and the preactivations)."""
    tokens, hidden = args["tokens"], args["hidden_units"] * args["UNIT"]
    intermediate = args["intermediate_units"] * args["UNIT"]
    written = 3 if args["STORE_PREACT"] else 1
    elements = tokens * hidden + 2 * intermediate * hidden + written * tokens * intermediate
    return {
        "name": metadata.name,
        "flops16": 4 * tokens * hidden * intermediate,
        "flops32": (FORWARD_FLOPS[args["ACTIVATION"]] + 1) * tokens * intermediate,
        "bytes": elements * args["product"].element_size(),
    }


def _down_cost(grid: object, metadata: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Name, flops and bytes of one launch: reads product and weight, writes y."""
    tokens, hidden = args["tokens"], args["hidden_units"] * args["UNIT"]
    intermediate = args["intermediate_units"] * args["UNIT"]
    elements = tokens * intermediate + hidden * intermediate + tokens * hidden
    return {
        "name": metadata.name,
        "flops16": 2 * tokens * hidden * intermediate,
        "bytes": elements * args["y"].element_size(),
    }


# In both kernels the rows of the weights are the rows of the matrix product and the tokens its columns, padded to
# TOKENS: no lane of the wide side is idle. Programs are meant to be resident all at once, so that the memory is shared
# out among them and none waits for another's turn. Rows past the last are read as the last one, unmasked, and not
# stored.
#
# SLICES > 1 parts the columns among slices of one tile: row (s, r) of the product holds weight row r at slice s, column
# (s, t) token t at slice s, and what belongs together is on the diagonal, where _join_slices adds it up. The rest is
# computed for nothing, which costs no memory traffic: so few rows fill a wide matrix instruction, and a weight with few
# rows is shared out among enough programs without parting a row among several.


@triton.jit
def _stream(
    weight,
    x,
    columns,
    token,
    tokens,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SLICES: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """weight·xᵀ in fp32, [SLICES·ROWS, SLICES·TOKENS]: the diagonal blocks hold what each slice of the columns gives.

    `weight` holds the addresses of SLICES·ROWS rows, [.., 1], `x` those of SLICES·TOKENS rows; a tile is SLICES·BLOCK_K
    columns. EVEN says that no tile passes the row's end.
    """
    k = tl.arange(0, BLOCK_K)[None, :]
    weight_shift = (tl.arange(0, SLICES * ROWS)[:, None] // ROWS) * BLOCK_K
    x_shift = (tl.arange(0, SLICES * TOKENS)[:, None] // TOKENS) * BLOCK_K
    present = token < tokens
    acc = tl.zeros((SLICES * ROWS, SLICES * TOKENS), tl.float32)
    for tile in tl.range(0, tl.cdiv(columns, SLICES * BLOCK_K), num_stages=STAGES):
        column = tile * (SLICES * BLOCK_K)
        if EVEN:
            w = tl.load(weight + (column + weight_shift + k))
            v = tl.load(x + (column + x_shift + k), mask=present, other=0.0)
        else:
            w = tl.load(weight + (column + weight_shift + k), mask=column + weight_shift + k < columns, other=0.0)
            v = tl.load(x + (column + x_shift + k), mask=present & (column + x_shift + k < columns), other=0.0)
        acc = add_product(acc, w, v.T, PRECISION)
    return acc


@triton.jit
def _join_slices(acc, ROWS: tl.constexpr, TOKENS: tl.constexpr, SLICES: tl.constexpr):
    """The sum of the diagonal blocks: [SLICES·ROWS, SLICES·TOKENS] -> [ROWS, TOKENS]."""
    if SLICES == 1:
        joined = acc
    else:
        row_slice = tl.arange(0, SLICES * ROWS)[:, None] // ROWS
        token_slice = tl.arange(0, SLICES * TOKENS)[None, :] // TOKENS
        blocks = tl.where(row_slice == token_slice, acc, 0.0).reshape(SLICES, ROWS, SLICES, TOKENS)
        joined = tl.sum(tl.sum(blocks, axis=2), axis=0)
    return joined


@triton.jit
def _prefetch(addresses, size):
    """Ask for `size` bytes (a multiple of 16) at each address to be brought into the L2 cache; sm_90 and later."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0;",
        "=r,l,r",
        [addresses, size],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit(
    launch_metadata=_gate_up_cost,
    do_not_specialize=[
        "tokens",
        "hidden_units",
        "intermediate_units",
        "x_stride",
        "gate_stride",
        "up_stride",
    ],
)
def gate_up_decode_kernel(
    x,
    gate_weight,
    up_weight,
    gate_bias,
    up_bias,
    product,
    gate_out,
    up_out,
    tokens: tl.int32,
    hidden_units: tl.int32,
    intermediate_units: tl.int32,
    x_stride: tl.int64,
    gate_stride: tl.int64,
    up_stride: tl.int64,
    ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    STORE_PREACT: tl.constexpr,
    PRECISION: tl.constexpr,
    OVERLAP: tl.constexpr,
    UNIT: tl.constexpr,
    EVEN: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """product = act(gate)·up, gate = x·gate_weightᵀ + gate_bias and up likewise, both rounded to the storage dtype.

    x [tokens, hidden], weights [intermediate, hidden] with a stride each, product (and, if STORE_PREACT, gate_out and
    up_out) [tokens, intermediate] contiguous. Lengths and strides come in units of UNIT elements, a multiple of 16
    bytes. A program makes ROWS / 2 columns of the product from as many rows of each weight.

    With OVERLAP the down kernel that follows may start at once, and waits by itself for this one's results.
    """
    pid = tl.program_id(0)
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    hidden = hidden_units * UNIT
    intermediate = intermediate_units * UNIT
    # Eight gate rows and the eight up rows that belong to them by turns: in the layout of every matrix instruction's
    # result the two are then in one thread's registers.
    HALF: tl.constexpr = ROWS // 2
    i = tl.arange(0, ROWS)[:, None]
    row = pid * HALF + (i // 16) * 8 + i % 8
    row = tl.minimum(row, intermediate - 1).to(tl.int64)
    is_up = (i // 8) % 2 == 1
    weight = tl.where(is_up, up_weight + row * (up_stride * UNIT), gate_weight + row * (gate_stride * UNIT))
    token = tl.arange(0, TOKENS)[:, None]
    x += token.to(tl.int64) * (x_stride * UNIT)
    acc = _stream(weight, x, hidden, token, tokens, ROWS, TOKENS, COLUMNS, 1, STAGES, EVEN, PRECISION)
    g, u = acc.reshape(ROWS // 16, 2, 8, TOKENS).permute(0, 2, 3, 1).split()
    g = g.reshape(HALF, TOKENS)
    u = u.reshape(HALF, TOKENS)

    n = pid * HALF + tl.arange(0, HALF)[:, None]
    t = tl.arange(0, TOKENS)[None, :]
    if HAS_BIAS:
        g += tl.load(gate_bias + n, mask=n < intermediate, other=0.0).to(tl.float32)
        u += tl.load(up_bias + n, mask=n < intermediate, other=0.0).to(tl.float32)
    g = g.to(product.dtype.element_ty)
    u = u.to(product.dtype.element_ty)
    inside = (n < intermediate) & (t < tokens)
    offsets = t.to(tl.int64) * intermediate + n
    if STORE_PREACT:
        tl.store(gate_out + offsets, g, mask=inside)
        tl.store(up_out + offsets, u, mask=inside)
    y = activate(g.to(tl.float32), ACTIVATION) * u.to(tl.float32)
    tl.store(product + offsets, y.to(product.dtype.element_ty), mask=inside)


@triton.jit(
    launch_metadata=_down_cost,
    do_not_specialize=["tokens", "hidden_units", "intermediate_units", "weight_stride"],
)
def down_decode_kernel(
    product,
    weight,
    bias,
    y,
    tokens: tl.int32,
    hidden_units: tl.int32,
    intermediate_units: tl.int32,
    weight_stride: tl.int64,
    UNIT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    SLICES: tl.constexpr,
    OVERLAP: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """y = product·weightᵀ + bias; a program makes ROWS columns of y.

    product [tokens, intermediate] and y [tokens, hidden] contiguous, weight [hidden, intermediate] with a stride.
    Lengths and strides come in units of UNIT elements, a multiple of 16 bytes.

    With OVERLAP the kernel is launched as a programmatic dependent: until gdc_wait it may run beside the kernel before
    it and touches nothing but the weight, of which each program brings its rows' first AHEAD columns into the L2 cache.
    """
    pid = tl.program_id(0)
    hidden = hidden_units * UNIT
    intermediate = intermediate_units * UNIT
    weight_stride *= UNIT
    if OVERLAP:
        if AHEAD > 0:
            # The instruction takes one lane at a time: two pieces for each of 128 threads.
            PIECES: tl.constexpr = 256 // ROWS
            PIECE: tl.constexpr = AHEAD // PIECES
            PIECE_BYTES: tl.constexpr = PIECE * weight.dtype.element_ty.primitive_bitwidth // 8
            r = tl.minimum(pid * ROWS + tl.arange(0, ROWS)[:, None], hidden - 1).to(tl.int64)
            begin = tl.arange(0, PIECES)[None, :] * PIECE
            _prefetch(weight + r * weight_stride + begin, tl.full((ROWS, PIECES), PIECE_BYTES, tl.int32))
        tl.extra.cuda.gdc_wait()

    i = tl.arange(0, SLICES * ROWS)[:, None] % ROWS
    row = tl.minimum(pid * ROWS + i, hidden - 1).to(tl.int64)
    weight += row * weight_stride
    token = tl.arange(0, SLICES * TOKENS)[:, None] % TOKENS
    product += token.to(tl.int64) * intermediate
    BLOCK_K: tl.constexpr = COLUMNS // SLICES
    acc = _stream(weight, product, intermediate, token, tokens, ROWS, TOKENS, BLOCK_K, SLICES, STAGES, EVEN, PRECISION)
    acc = _join_slices(acc, ROWS, TOKENS, SLICES)
    n = pid * ROWS + tl.arange(0, ROWS)[:, None]
    t = tl.arange(0, TOKENS)[None, :]
    if HAS_BIAS:
        acc += tl.load(bias + n, mask=n < hidden, other=0.0).to(tl.float32)
    inside = (n < hidden) & (t < tokens)
    tl.store(y + t.to(tl.int64) * hidden + n, acc.to(y.dtype.element_ty), mask=inside)
