"""The gate/up product with act·mul in its epilogue for compute capability 9.0: a warp-specialised Gluon kernel."""

# Kernels are called by position, and their parameters have Gluon's types, not Python's.
# ruff: noqa: PLR0915, PLR0917, PLR1714, RET505, SIM300  # Gluon is not all of Python
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

from ...activations import activate
from ..kernels import gate_up_cost, tile_of
from .gluon_names import reinterpreted, store_box
from .shares import load_step, piece_of, share_of, sum_share


@gluon.jit
def pack_pairs(gate, up, DTYPE: gl.constexpr):
    """Two fp32 blocks rounded to the 16-bit DTYPE, one pair in each int32 (gate low): half the registers of fp32."""
    if DTYPE == gl.bfloat16:
        both = gl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [gate, up], dtype=gl.int32, is_pure=True, pack=1
        )
    else:
        gl.static_assert(DTYPE == gl.float16, "16-bit storage only")
        both = gl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [gate, up], dtype=gl.int32, is_pure=True, pack=1
        )
    return both


@gluon.jit
def unpack_pairs(both, zero, DTYPE: gl.constexpr):
    """The fp32 values of packed pairs, (low, high). Nothing that uses them can be scheduled before `zero` is there."""
    if DTYPE == gl.bfloat16:
        # The upper half of an fp32 number is its bfloat16; prmt picks two bytes of the pair and two of the zero.
        low, high = gl.inline_asm_elementwise(
            "prmt.b32 $0, $2, $3, 0x1044; prmt.b32 $1, $2, $3, 0x3244;",
            "=r,=r,r,r",
            [both, zero],
            dtype=(gl.float32, gl.float32),
            is_pure=True,
            pack=1,
        )
    else:
        low, high = gl.inline_asm_elementwise(
            "{ .reg .b32 t; .reg .b16 l, h; or.b32 t, $2, $3; mov.b32 {l, h}, t;"
            " cvt.f32.f16 $0, l; cvt.f32.f16 $1, h; }",
            "=f,=f,r,r",
            [both, zero],
            dtype=(gl.float32, gl.float32),
            is_pure=True,
            pack=1,
        )
    return low, high


@gluon.jit
def zero_from_here():
    """0, in a way that no compiler can know before this point of the program: the top bit of the clock."""
    return gl.inline_asm_elementwise(
        "{ .reg .b32 t; mov.u32 t, %clock_hi; shr.u32 $0, t, 31; }", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def halves(block):
    """[R, C] -> its left and its right [R, C/2]; in the layout of a product each thread keeps what it has."""
    rows: gl.constexpr = block.shape[0]
    columns: gl.constexpr = block.shape[1]
    return block.reshape([rows, 2, columns // 2]).permute((0, 2, 1)).split()


@gluon.jit
def _produce(
    x,
    gate_weight,
    up_weight,
    x_ring,
    weight_ring,
    full,
    empty,
    rows,
    columns,
    depth,
    whole,
    share,
    lanes,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    WARPGROUPS: gl.constexpr,
    SPLIT: gl.constexpr,
):
    """One warp: fills the ring for this program's share of the last tiles, if they are shared, then for whole tiles."""
    row_tiles = gl.cdiv(rows, WARPGROUPS * ROWS)
    column_tiles = gl.cdiv(columns, COLUMNS)
    steps = gl.cdiv(depth, DEPTH)
    tiles = row_tiles * column_tiles
    i = 0
    # fmt: off
    if SPLIT:
        _, lane, first, end_of_share = share_of(whole, share, lanes, tiles, steps)
        tiles = whole
        for _ in range(2):
            tile, begin, end = piece_of(first, end_of_share, whole, lane, lanes, steps)
            row, column = tile_of(tile, row_tiles, column_tiles, GROUP)
            for k in range(begin, end):
                load_step(x, gate_weight, up_weight, x_ring, weight_ring, full, empty, row, column, k, i,
                          ROWS, COLUMNS, DEPTH, STAGES, WARPGROUPS)
                i += 1
            first = gl.minimum(first + gl.maximum(end - begin, 0), end_of_share)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = tile_of(tile, row_tiles, column_tiles, GROUP)
        for k in range(steps):
            load_step(x, gate_weight, up_weight, x_ring, weight_ring, full, empty, row, column, k, i,
                       ROWS, COLUMNS, DEPTH, STAGES, WARPGROUPS)
            i += 1
    # fmt: on


@gluon.jit
def joined(left, right):
    """Two [R, C] side by side, the inverse of `halves`."""
    rows: gl.constexpr = left.shape[0]
    columns: gl.constexpr = left.shape[1]
    return gl.join(left, right).permute((0, 2, 1)).reshape([rows, 2 * columns])


@gluon.jit
def eighths(block):
    """[R, C] -> eight [R, C/8] from left to right."""
    left, right = halves(block)
    a, b = halves(left)
    c, d = halves(right)
    a0, a1 = halves(a)
    b0, b1 = halves(b)
    c0, c1 = halves(c)
    d0, d1 = halves(d)
    return a0, a1, b0, b1, c0, c1, d0, d1


@gluon.jit
def turned(parts, BY: gl.constexpr):
    """A tuple of four or eight with its first BY at the end, so that a loop can take BY of them each time round."""
    if BY == len(parts):
        return parts
    elif BY == 2 and len(parts) == 8:
        return parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], parts[0], parts[1]
    elif BY == 4 and len(parts) == 8:
        return parts[4], parts[5], parts[6], parts[7], parts[0], parts[1], parts[2], parts[3]
    else:
        gl.static_assert(BY == 2 and len(parts) == 4, "4 or 8 parts by 2, 4 or 8")
        return parts[2], parts[3], parts[0], parts[1]


@gluon.jit
def quarters(block):
    """[R, C] -> four [R, C/4] from left to right."""
    left, right = halves(block)
    a, b = halves(left)
    c, d = halves(right)
    return a, b, c, d


@gluon.jit
def _activated(both, ACTIVATION: gl.constexpr, DTYPE: gl.constexpr):
    """act(gate)·up of packed pairs, rounded to DTYPE."""
    g, u = unpack_pairs(both, zero_from_here(), DTYPE)
    return (activate(g, ACTIVATION) * u).to(DTYPE)


@gluon.jit
def _packed(
    acc,
    gate_bias,
    up_bias,
    column,
    columns,
    COLUMNS: gl.constexpr,
    PIECES: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    DTYPE: gl.constexpr,
):
    """A tile's sums from `column` on with their biases, rounded, gate packed with up, in PIECES from left to right."""
    left, right = halves(acc)
    if HAS_BIAS:
        c = column + gl.arange(0, COLUMNS, gl.SliceLayout(0, left.type.layout))
        inside = c < columns
        left += gl.load(gate_bias + c, mask=inside, other=0.0).to(gl.float32)[None, :]
        right += gl.load(up_bias + c, mask=inside, other=0.0).to(gl.float32)[None, :]
    both = pack_pairs(left, right, DTYPE)
    return quarters(both) if PIECES == 4 else eighths(both)


@gluon.jit
def _store_box(
    y,
    both,
    product,
    gate,
    up,
    staging,
    row,
    column,
    FIRST: gl.constexpr,
    STORE_PREACT: gl.constexpr,
):
    """Send one piece of a finished tile on its way, by way of shared memory."""
    dtype: gl.constexpr = product.dtype
    # Two sets of staging buffers by turns: all boxes but the last set's have left theirs.
    tma.store_wait(3 if STORE_PREACT else 1)
    staging.index(FIRST).store(y)
    if STORE_PREACT:
        staging.index(FIRST + 1).store((both & 0xFFFF).to(gl.int16).to(dtype, bitcast=True))
        staging.index(FIRST + 2).store((both >> 16).to(gl.int16).to(dtype, bitcast=True))
    fence_async_shared()
    store_box(product, [row, column], staging.index(FIRST))
    if STORE_PREACT:
        store_box(gate, [row, column], staging.index(FIRST + 1))
        store_box(up, [row, column], staging.index(FIRST + 2))


@gluon.jit
def _consume(
    WARPGROUP: gl.constexpr,
    product,
    gate,
    up,
    gate_bias,
    up_bias,
    x_ring,
    weight_ring,
    staging,
    full,
    empty,
    parts,
    flags,
    rows,
    columns,
    depth,
    whole,
    share,
    lanes,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    PIECES: gl.constexpr,
    UNROLL: gl.constexpr,
    ACTIVATION: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    STORE_PREACT: gl.constexpr,
    WARPGROUPS: gl.constexpr,
    SPLIT: gl.constexpr,
):
    """One warpgroup: ROWS rows of every tile. A tile's epilogue runs in pieces under the next tile's products.

    At a tile's end its accumulators are rounded and packed, gate beside up, into half as many registers, and the next
    tile's products are issued at once; each of their first k-steps then hides one piece of the activation. UNROLL
    pieces are written out, the rest is a loop, since the code of a long epilogue would not fit the instruction cache.
    """
    outputs: gl.constexpr = 3 if STORE_PREACT else 1
    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 2 * COLUMNS, 16])
    dtype: gl.constexpr = product.dtype
    box: gl.constexpr = COLUMNS // PIECES
    gl.static_assert(PIECES == 4 or PIECES == 8, "the epilogue is written out for four or eight pieces")
    row_tiles = gl.cdiv(rows, WARPGROUPS * ROWS)
    column_tiles = gl.cdiv(columns, COLUMNS)
    steps = gl.cdiv(depth, DEPTH)
    # The compiler must not see how often the pieces' loop goes round, or it writes all of them out.
    turns = gl.minimum(steps, PIECES) // UNROLL
    acc = gl.zeros((ROWS, 2 * COLUMNS), gl.float32, accumulator)
    left, right = halves(acc)
    both = pack_pairs(left, right, product.dtype)
    waiting = quarters(both) if PIECES == 4 else eighths(both)
    out_row = rows  # there is no tile before the first one: TMA drops boxes beyond the last row
    out_column = 0
    tiles = row_tiles * column_tiles
    i = 0
    if SPLIT:
        # fmt: off
        acc, own, i = sum_share(WARPGROUP, acc, parts, flags, x_ring, weight_ring, full, empty, tiles, steps,
                                whole, share, lanes, STAGES, WARPGROUPS, False)
        # fmt: on
        row, column = tile_of(gl.maximum(own, 0), row_tiles, column_tiles, GROUP)
        out_row = gl.where(own >= 0, (row * WARPGROUPS + WARPGROUP) * ROWS, rows)
        out_column = column * COLUMNS
        waiting = _packed(acc, gate_bias, up_bias, out_column, columns, COLUMNS, PIECES, HAS_BIAS, dtype)
        # Sums that other instructions have changed must not go on into the loop of products: the compiler would have
        # each product wait for the one before.
        acc = gl.zeros((ROWS, 2 * COLUMNS), gl.float32, accumulator)
        tiles = whole
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        mbarrier.wait(full.index(i % STAGES), (i // STAGES) & 1)
        for turn in range(turns):
            for j in gl.static_range(UNROLL):
                piece = turn * UNROLL + j
                s = i % STAGES
                operand = weight_ring.index(s).permute((1, 0))
                # A tile's first product ignores the accumulator: zeroing it would cost 128 register moves.
                mine = x_ring.index(WARPGROUPS * s + WARPGROUP)
                token = warpgroup_mma(mine, operand, acc, use_acc=piece > 0, is_async=True)
                acc = warpgroup_mma_wait(1, deps=(token,))
                mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), pred=piece > 0)
                # Waiting for the next stage here keeps the epilogue's arithmetic behind the products: between them it
                # would hold up their issue.
                mbarrier.wait(full.index((i + 1) % STAGES), ((i + 1) // STAGES) & 1)
                y = _activated(waiting[j], ACTIVATION, dtype)
                _store_box(
                    y,
                    waiting[j],
                    product,
                    gate,
                    up,
                    staging,
                    out_row,
                    out_column + piece * box,
                    (WARPGROUP * 2 + j % 2) * outputs,
                    STORE_PREACT,
                )
                i += 1
            waiting = turned(waiting, UNROLL)
        for _ in range(PIECES, steps):
            s = i % STAGES
            mbarrier.wait(full.index(s), (i // STAGES) & 1)
            operand = weight_ring.index(s).permute((1, 0))
            token = warpgroup_mma(x_ring.index(WARPGROUPS * s + WARPGROUP), operand, acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(token,))  # one step stays in flight; the one before has left its stage
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
            i += 1
        row, column = tile_of(tile, row_tiles, column_tiles, GROUP)
        out_row = (row * WARPGROUPS + WARPGROUP) * ROWS
        out_column = column * COLUMNS
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
        waiting = _packed(acc, gate_bias, up_bias, out_column, columns, COLUMNS, PIECES, HAS_BIAS, dtype)
    for turn in range(turns):
        for j in gl.static_range(UNROLL):
            y = _activated(waiting[j], ACTIVATION, dtype)
            column = out_column + (turn * UNROLL + j) * box
            buffer = (WARPGROUP * 2 + j % 2) * outputs
            _store_box(y, waiting[j], product, gate, up, staging, out_row, column, buffer, STORE_PREACT)
        waiting = turned(waiting, UNROLL)
    tma.store_wait(0)


@gluon.jit(launch_metadata=gate_up_cost, do_not_specialize=["rows", "columns", "depth", "whole", "share", "lanes"])
def gate_up_hopper_kernel(
    x,
    gate_weight,
    up_weight,
    product,
    gate,
    up,
    gate_bias,
    up_bias,
    parts,
    flags,
    rows: gl.int32,
    columns: gl.int32,
    depth: gl.int32,
    whole: gl.int32,
    share: gl.int32,
    lanes: gl.int32,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    PIECES: gl.constexpr,
    UNROLL: gl.constexpr,
    ACTIVATION: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    STORE_PREACT: gl.constexpr,
    WARPGROUPS: gl.constexpr,
    SPLIT: gl.constexpr,
):
    """product [M, H] = act(x·Wgᵀ + bg)·(x·Wuᵀ + bu) for x [M, K] and weights [H, K], 16-bit, accumulated in fp32.

    A persistent program per SM: two or three warpgroups that compute and one warp that copies. Their tile is ROWS
    tokens of each warpgroup by COLUMNS gate and COLUMNS up columns. gate and up come through descriptors of their own,
    so the weights may lie anywhere. More than PIECES·DEPTH summands are needed: see `Config.sums_in`.

    Where SPLIT, tiles from `whole` on are shared, `share` steps for each program, which come first: see `Shares`. Sums
    that others go on with go to `parts`, [programs, WARPGROUPS·ROWS, 2·COLUMNS] in fp32, and `flags`, [programs,
    WARPGROUPS, 128], which must be zeros, say which are there.
    """
    dtype: gl.constexpr = x.dtype
    outputs: gl.constexpr = 3 if STORE_PREACT else 1
    x_ring = gl.allocate_shared_memory(dtype, [WARPGROUPS * STAGES, ROWS, DEPTH], x.layout)
    weight_ring = gl.allocate_shared_memory(dtype, [2 * STAGES, COLUMNS, DEPTH], gate_weight.layout)
    staging = gl.allocate_shared_memory(dtype, [2 * WARPGROUPS * outputs, ROWS, COLUMNS // PIECES], product.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    # The same bytes, seen as one operand of gate rows above up rows.
    wide_ring = reinterpreted(weight_ring, dtype, [STAGES, 2 * COLUMNS, DEPTH], gate_weight.layout)
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=WARPGROUPS)
    gl.static_assert(WARPGROUPS == 2 or WARPGROUPS == 3, "two or three warpgroups share a tile")
    # fmt: off
    if WARPGROUPS == 2:
        gl.warp_specialize(
            [
                (_consume, (0, product, gate, up, gate_bias, up_bias, x_ring, wide_ring, staging, full, empty,
                            parts, flags, rows, columns, depth, whole, share, lanes, ROWS, COLUMNS, DEPTH, STAGES,
                            GROUP, PIECES, UNROLL, ACTIVATION, HAS_BIAS, STORE_PREACT, WARPGROUPS, SPLIT)),
                (_consume, (1, product, gate, up, gate_bias, up_bias, x_ring, wide_ring, staging, full, empty,
                            parts, flags, rows, columns, depth, whole, share, lanes, ROWS, COLUMNS, DEPTH, STAGES,
                            GROUP, PIECES, UNROLL, ACTIVATION, HAS_BIAS, STORE_PREACT, WARPGROUPS, SPLIT)),
                (_produce, (x, gate_weight, up_weight, x_ring, weight_ring, full, empty, rows, columns, depth,
                            whole, share, lanes, ROWS, COLUMNS, DEPTH, STAGES, GROUP, WARPGROUPS, SPLIT)),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (0, product, gate, up, gate_bias, up_bias, x_ring, wide_ring, staging, full, empty,
                            parts, flags, rows, columns, depth, whole, share, lanes, ROWS, COLUMNS, DEPTH, STAGES,
                            GROUP, PIECES, UNROLL, ACTIVATION, HAS_BIAS, STORE_PREACT, WARPGROUPS, SPLIT)),
                (_consume, (1, product, gate, up, gate_bias, up_bias, x_ring, wide_ring, staging, full, empty,
                            parts, flags, rows, columns, depth, whole, share, lanes, ROWS, COLUMNS, DEPTH, STAGES,
                            GROUP, PIECES, UNROLL, ACTIVATION, HAS_BIAS, STORE_PREACT, WARPGROUPS, SPLIT)),
                (_consume, (2, product, gate, up, gate_bias, up_bias, x_ring, wide_ring, staging, full, empty,
                            parts, flags, rows, columns, depth, whole, share, lanes, ROWS, COLUMNS, DEPTH, STAGES,
                            GROUP, PIECES, UNROLL, ACTIVATION, HAS_BIAS, STORE_PREACT, WARPGROUPS, SPLIT)),
                (_produce, (x, gate_weight, up_weight, x_ring, weight_ring, full, empty, rows, columns, depth,
                            whole, share, lanes, ROWS, COLUMNS, DEPTH, STAGES, GROUP, WARPGROUPS, SPLIT)),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )
    # fmt: on
