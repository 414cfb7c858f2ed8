"""The gradients of gate and up for compute capability 9.0: dY·Wd, and act·mul's backward under the next tile."""

# Kernels are called by position, and their parameters have Gluon's types, not Python's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ..activations import activate_and_slope
from .backward_kernels import gate_up_backward_cost
from .gluon_names import load_box, store_box
from .hopper import eighths, halves, joined, pack_pairs, unpack_pairs, zero_from_here
from .kernels import tile_of

# The epilogue's steps: each takes an eighth of a tile's columns.
PIECES = gl.constexpr(8)


@gluon.jit
def _fetch(piece, gate, up, inputs, arrived, free, row, column, ROWS: gl.constexpr, BOX: gl.constexpr):
    """Bring gate and up to a piece of the epilogue, in one of two slots by turns."""
    slot = piece % 2
    ready = arrived.index(slot)
    mbarrier.wait(free.index(slot), ((piece // 2) & 1) ^ 1)
    mbarrier.expect(ready, 2 * ROWS * BOX * 2)
    load_box(gate, [row, column], ready, inputs.index(2 * slot))
    load_box(up, [row, column], ready, inputs.index(2 * slot + 1))


@gluon.jit
def _produce(
    dy,
    down_weight,
    gate,
    up,
    dy_ring,
    weight_ring,
    inputs,
    full,
    empty,
    arrived,
    free,
    rows,
    columns,
    depth,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """One warp: fills the ring, and with a tile's first steps brings the gate and up of the tile before it."""
    box: gl.constexpr = COLUMNS // PIECES
    row_tiles = gl.cdiv(rows, ROWS)
    column_tiles = gl.cdiv(columns, COLUMNS)
    steps = gl.cdiv(depth, DEPTH)
    stage_bytes: gl.constexpr = (ROWS + COLUMNS) * DEPTH * 2
    last_row = rows  # there is no tile before the first one: TMA fills boxes beyond the last row with zeros
    last_column = 0
    i = 0
    for tile in range(gl.program_id(0), row_tiles * column_tiles, gl.num_programs(0)):
        row_tile, column_tile = tile_of(tile, row_tiles, column_tiles, GROUP)
        row = row_tile * ROWS
        column = column_tile * COLUMNS
        for k in range(steps):
            s = i % STAGES
            ready = full.index(s)
            mbarrier.wait(empty.index(s), ((i // STAGES) & 1) ^ 1)
            mbarrier.expect(ready, stage_bytes)
            load_box(down_weight, [k * DEPTH, column], ready, weight_ring.index(s))
            load_box(dy, [row, k * DEPTH], ready, dy_ring.index(s))
            i += 1
            if k < PIECES:
                _fetch(k, gate, up, inputs, arrived, free, last_row, last_column + k * box, ROWS, box)
        last_row = row
        last_column = column
    for k in range(PIECES):
        _fetch(k, gate, up, inputs, arrived, free, last_row, last_column + k * box, ROWS, box)


@gluon.jit
def _columns(both, zero, DTYPE: gl.constexpr):
    """[R, C] packed pairs of adjacent columns -> their fp32 values [R, 2C], which each thread has already."""
    even, odd = unpack_pairs(both, zero, DTYPE)
    pairs = gl.join(even, odd)
    return pairs.reshape([pairs.shape[0], 2 * pairs.shape[1]])


@gluon.jit
def _gradients(both, gate, up, ACTIVATION: gl.constexpr, DTYPE: gl.constexpr):
    """(dgate, dup, product) in DTYPE from the packed gradient of the product, and gate and up in its layout."""
    v = _columns(both, zero_from_here(), DTYPE)
    g = gl.convert_layout(gate, v.type.layout, assert_trivial=True).to(gl.float32)
    u = gl.convert_layout(up, v.type.layout, assert_trivial=True).to(gl.float32)
    a, slope = activate_and_slope(g, ACTIVATION)
    return (v * (u * slope)).to(DTYPE), (v * a).to(DTYPE), (a * u).to(DTYPE)


@gluon.jit
def _finish_piece(
    both,
    piece,
    dgate,
    dup,
    product,
    inputs,
    staging,
    arrived,
    free,
    row,
    column,
    SLOT: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    """act·mul's backward of one piece, whose rounded dproduct comes as pairs of adjacent columns."""
    dtype: gl.constexpr = product.dtype
    mbarrier.wait(arrived.index(SLOT), (piece // 2) & 1)
    layout: gl.constexpr = _columns(both, 0, dtype).type.layout
    g = inputs.index(2 * SLOT).load(layout)
    u = inputs.index(2 * SLOT + 1).load(layout)
    fence_async_shared()  # else the copy that the next line lets in may overtake these loads
    mbarrier.arrive(free.index(SLOT))
    # In two halves, each of which keeps half as many values in registers.
    both0, both1 = halves(both)
    g0, g1 = halves(g)
    u0, u1 = halves(u)
    dg0, du0, y0 = _gradients(both0, g0, u0, ACTIVATION, dtype)
    dg1, du1, y1 = _gradients(both1, g1, u1, ACTIVATION, dtype)
    # Two sets of staging buffers by turns: all boxes but the last set's have left theirs.
    tma.store_wait(3)
    staging.index(3 * SLOT).store(joined(dg0, dg1))
    staging.index(3 * SLOT + 1).store(joined(du0, du1))
    staging.index(3 * SLOT + 2).store(joined(y0, y1))
    fence_async_shared()
    store_box(dgate, [row, column], staging.index(3 * SLOT))
    store_box(dup, [row, column], staging.index(3 * SLOT + 1))
    store_box(product, [row, column], staging.index(3 * SLOT + 2))


@gluon.jit
def _consume(
    dgate,
    dup,
    product,
    dy_ring,
    weight_ring,
    inputs,
    staging,
    full,
    empty,
    arrived,
    free,
    rows,
    columns,
    depth,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    """Two warpgroups: a tile each time. Its epilogue runs in pieces under the next tile's products.

    Both share one copy of the code. As partitions of their own, as in the forward kernel, they would have two, and all
    pieces written out twice are more than the instruction cache holds.
    """
    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, COLUMNS, 16])
    dtype: gl.constexpr = product.dtype
    box: gl.constexpr = COLUMNS // PIECES
    row_tiles = gl.cdiv(rows, ROWS)
    column_tiles = gl.cdiv(columns, COLUMNS)
    steps = gl.cdiv(depth, DEPTH)
    acc = gl.zeros((ROWS, COLUMNS), gl.float32, accumulator)
    left, right = acc.reshape([ROWS, COLUMNS // 2, 2]).split()
    waiting = eighths(pack_pairs(left, right, dtype))
    out_row = rows  # there is no tile before the first one: TMA drops boxes beyond the last row
    out_column = 0
    i = 0
    for tile in range(gl.program_id(0), row_tiles * column_tiles, gl.num_programs(0)):
        mbarrier.wait(full.index(i % STAGES), (i // STAGES) & 1)
        for piece in gl.static_range(PIECES):
            s = i % STAGES
            # A tile's first product ignores the accumulator: zeroing it would cost 128 register moves.
            token = warpgroup_mma(dy_ring.index(s), weight_ring.index(s), acc, use_acc=piece > 0, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(token,))
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), pred=piece > 0)
            # Waiting for the next stage here keeps the epilogue's arithmetic behind the products: between them it
            # would hold up their issue.
            mbarrier.wait(full.index((i + 1) % STAGES), ((i + 1) // STAGES) & 1)
            _finish_piece(
                waiting[piece],
                piece,
                dgate,
                dup,
                product,
                inputs,
                staging,
                arrived,
                free,
                out_row,
                out_column + piece * box,
                piece % 2,
                ACTIVATION,
            )
            i += 1
        for _ in range(PIECES, steps):
            s = i % STAGES
            mbarrier.wait(full.index(s), (i // STAGES) & 1)
            token = warpgroup_mma(dy_ring.index(s), weight_ring.index(s), acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(token,))  # one step stays in flight; the one before has left its stage
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
            i += 1
        row_tile, column_tile = tile_of(tile, row_tiles, column_tiles, GROUP)
        out_row = row_tile * ROWS
        out_column = column_tile * COLUMNS
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
        left, right = acc.reshape([ROWS, COLUMNS // 2, 2]).split()
        waiting = eighths(pack_pairs(left, right, dtype))
    for piece in gl.static_range(PIECES):
        _finish_piece(
            waiting[piece],
            piece,
            dgate,
            dup,
            product,
            inputs,
            staging,
            arrived,
            free,
            out_row,
            out_column + piece * box,
            piece % 2,
            ACTIVATION,
        )
    tma.store_wait(0)


@gluon.jit(launch_metadata=gate_up_backward_cost, do_not_specialize=["rows", "columns", "depth"])
def gate_up_backward_hopper_kernel(
    dy,
    down_weight,
    gate,
    up,
    dgate,
    dup,
    product,
    rows: gl.int32,
    columns: gl.int32,
    depth: gl.int32,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    """dgate, dup and product, [M, H] each, of dy [M, D], down_weight [D, H] and gate and up [M, H], all descriptors.

    The gradient of the product is rounded to the storage dtype, as it is where a GEMM stores it, before the backward of
    act·mul. A persistent program per SM of three warpgroups: two that compute ROWS tokens by COLUMNS columns, and one
    warp that copies. More than PIECES·DEPTH summands are needed: see `Config.sums_in`.
    """
    dtype: gl.constexpr = dy.dtype
    box: gl.constexpr = COLUMNS // PIECES
    dy_ring = gl.allocate_shared_memory(dtype, [STAGES, ROWS, DEPTH], dy.layout)
    weight_ring = gl.allocate_shared_memory(dtype, [STAGES, DEPTH, COLUMNS], down_weight.layout)
    inputs = gl.allocate_shared_memory(dtype, [4, ROWS, box], gate.layout)
    staging = gl.allocate_shared_memory(dtype, [6, ROWS, box], product.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    arrived = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    for s in gl.static_range(2):
        mbarrier.init(arrived.index(s), count=1)
        mbarrier.init(free.index(s), count=1)
    # fmt: off
    gl.warp_specialize(
        [
            (_consume, (dgate, dup, product, dy_ring, weight_ring, inputs, staging, full, empty, arrived, free,
                        rows, columns, depth, ROWS, COLUMNS, DEPTH, STAGES, GROUP, ACTIVATION)),
            (_produce, (dy, down_weight, gate, up, dy_ring, weight_ring, inputs, full, empty,
                        arrived, free, rows, columns, depth, ROWS, COLUMNS, DEPTH, STAGES, GROUP)),
        ],
        [1],
        [24],
    )
    # fmt: on
