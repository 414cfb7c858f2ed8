"""The gradients of gate and up for compute capability 9.0: dY·Wd, and act·mul's backward under the next tile."""

# Kernels are called by position, and their parameters have Gluon's types, not Python's.
# ruff: noqa: PLR0915, PLR0917
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from ...activations import activate_and_slope
from ..backward_kernels import gate_up_backward_cost
from ..kernels import tile_of
from .forward import pack_pairs, unpack_pairs, zero_from_here
from .gluon_names import load_box, reinterpreted
from .shares import piece_of, share_of, sum_share

# Rows of a piece of the epilogue, each 512 bytes of a tensor, and how many pieces of gate and up are on their way.
BOX = gl.constexpr(4)
AHEAD = gl.constexpr(4)


@gluon.jit
def _load_step(
    dy,
    down_weight,
    dy_ring,
    weight_ring,
    full,
    empty,
    row,
    column,
    k,
    i,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Fill the i-th stage with step k of a tile: each warpgroup's rows of dy, and the rows of the weight."""
    half: gl.constexpr = ROWS // 2
    s = i % STAGES
    ready = full.index(s)
    mbarrier.wait(empty.index(s), ((i // STAGES) & 1) ^ 1)
    mbarrier.expect(ready, (ROWS + COLUMNS) * DEPTH * 2)
    load_box(down_weight, [k * DEPTH, column * COLUMNS], ready, weight_ring.index(s))
    for w in gl.static_range(2):
        load_box(dy, [row * ROWS + w * half, k * DEPTH], ready, dy_ring.index(2 * s + w))


@gluon.jit
def _produce(
    dy,
    down_weight,
    dy_ring,
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
    SPLIT: gl.constexpr,
):
    """One warp: fills the ring for both warpgroups; a share of the last tiles, where they are shared, comes first."""
    row_tiles = gl.cdiv(rows, ROWS)
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
                _load_step(dy, down_weight, dy_ring, weight_ring, full, empty, row, column, k, i,
                           ROWS, COLUMNS, DEPTH, STAGES)
                i += 1
            first = gl.minimum(first + gl.maximum(end - begin, 0), end_of_share)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = tile_of(tile, row_tiles, column_tiles, GROUP)
        for k in range(steps):
            _load_step(dy, down_weight, dy_ring, weight_ring, full, empty, row, column, k, i,
                       ROWS, COLUMNS, DEPTH, STAGES)
            i += 1
    # fmt: on


@gluon.jit
def _step(i, first, dy_ring, weight_ring, acc, full, empty, WARPGROUP: gl.constexpr, STAGES: gl.constexpr):
    """Issue one step of the sum, wait for the one before it and for the next stage; `first` is 1 in a tile's first."""
    s = i % STAGES
    token = warpgroup_mma(
        dy_ring.index(2 * s + WARPGROUP), weight_ring.index(s), acc, use_acc=first == 0, is_async=True
    )
    acc = warpgroup_mma_wait(1, deps=(token,))
    mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), pred=first == 0)
    # Waiting for the next stage here keeps the epilogue's arithmetic behind the products.
    mbarrier.wait(full.index((i + 1) % STAGES), ((i + 1) // STAGES) & 1)
    return acc


@gluon.jit
def _fetch(gate, up, row, column, rows, pairs, r, c, inner):
    """A piece of gate and up, as pairs of adjacent columns; zeros outside."""
    inside = (r < rows - row) & (c < pairs - column)
    start = row.to(gl.int64) * pairs + column
    return gl.load(gate + start + inner, mask=inside, other=0), gl.load(up + start + inner, mask=inside, other=0)


@gluon.jit
def _gradients(v, g, u, ACTIVATION: gl.constexpr):
    a, slope = activate_and_slope(g, ACTIVATION)
    return v * (u * slope), v * a, a * u


@gluon.jit
def _finish(
    piece,
    fetched,
    gate,
    up,
    dgate_up,
    product,
    boxes,
    row,
    column,
    new_row,
    new_column,
    rows,
    pairs,
    r,
    c,
    inner,
    wide,
    PIECES: gl.constexpr,
    LEAD: gl.constexpr,
    ACTIVATION: gl.constexpr,
    DTYPE: gl.constexpr,
    layout: gl.constexpr,
):
    """act·mul's backward of one piece; gate and up of the one LEAD pieces later, the next tile's after the last."""
    zero = zero_from_here()  # keeps the arithmetic behind the products
    v0, v1 = unpack_pairs(boxes.index(piece).load(layout), zero, DTYPE)
    g0, g1 = unpack_pairs(fetched[0], zero, DTYPE)
    u0, u1 = unpack_pairs(fetched[1], zero, DTYPE)
    dg0, du0, y0 = _gradients(v0, g0, u0, ACTIVATION)
    dg1, du1, y1 = _gradients(v1, g1, u1, ACTIVATION)
    at = row + piece * BOX
    inside = (r < rows - at) & (c < pairs - column)
    out = at.to(gl.int64) * (2 * pairs) + column
    gl.store(dgate_up + out + wide, pack_pairs(dg0, dg1, DTYPE), mask=inside)
    gl.store(dgate_up + pairs + out + wide, pack_pairs(du0, du1, DTYPE), mask=inside)
    gl.store(product + at.to(gl.int64) * pairs + column + inner, pack_pairs(y0, y1, DTYPE), mask=inside)
    beyond = piece + LEAD >= PIECES
    at = gl.where(beyond, new_row, row) + (piece + LEAD) % PIECES * BOX
    return _fetch(gate, up, at, gl.where(beyond, new_column, column), rows, pairs, r, c, inner)


@gluon.jit
def _consume(
    WARPGROUP: gl.constexpr,
    gate,
    up,
    dgate_up,
    product,
    dy_ring,
    weight_ring,
    handoff,
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
    PER: gl.constexpr,
    ACTIVATION: gl.constexpr,
    SPLIT: gl.constexpr,
):
    """One warpgroup: half the rows of a tile each time, whose rounded result it leaves in shared memory for itself.

    It works that off in whole rows, PER pieces between two steps of the next tile's sum: there must be more steps than
    pieces / PER. No other warpgroup waits for it, and nothing is staged for TMA.
    """
    dtype: gl.constexpr = dy_ring.dtype
    half: gl.constexpr = ROWS // 2
    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    PIECES: gl.constexpr = half // BOX
    lead: gl.constexpr = AHEAD
    gl.static_assert(PIECES % lead == 0 and lead % PER == 0, "whole turns of pieces, and of pieces of a step")
    boxes = reinterpreted(handoff, gl.int32, [PIECES, BOX, COLUMNS // 2], gl.SwizzledSharedLayout(4, 1, BOX, [1, 0]))
    row_tiles = gl.cdiv(rows, ROWS)
    column_tiles = gl.cdiv(columns, COLUMNS)
    steps = gl.cdiv(depth, DEPTH)
    pairs = columns // 2
    r = gl.arange(0, BOX, gl.SliceLayout(1, layout))[:, None]
    c = gl.arange(0, COLUMNS // 2, gl.SliceLayout(0, layout))[None, :]
    inner = r * pairs + c
    wide = r * columns + c
    acc = gl.zeros((half, COLUMNS), gl.float32, accumulator)
    nothing = gl.zeros((BOX, COLUMNS // 2), gl.int32, layout)
    fetched = ()
    for _k in gl.static_range(lead):
        fetched += ((nothing, nothing),)
    row = rows  # there is no tile before the first one: nothing is stored beyond the last row
    column = 0
    tiles = row_tiles * column_tiles
    i = 0
    if SPLIT:
        # fmt: off
        acc, own, i = sum_share(WARPGROUP, acc, parts, flags, dy_ring, weight_ring, full, empty, tiles, steps,
                                whole, share, lanes, STAGES, 2, True)
        # fmt: on
        row_tile, column_tile = tile_of(gl.maximum(own, 0), row_tiles, column_tiles, GROUP)
        row = gl.where(own >= 0, row_tile * ROWS + WARPGROUP * half, rows)
        column = column_tile * (COLUMNS // 2)
        handoff.store(acc.to(dtype))
        acc = gl.zeros((half, COLUMNS), gl.float32, accumulator)  # for the same reason as in the forward
        fetched = ()
        for k in gl.static_range(lead):
            fetched += (_fetch(gate, up, row + k * BOX, column, rows, pairs, r, c, inner),)
        tiles = whole
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row_tile, column_tile = tile_of(tile, row_tiles, column_tiles, GROUP)
        new_row = row_tile * ROWS + WARPGROUP * half
        new_column = column_tile * (COLUMNS // 2)
        mbarrier.wait(full.index(i % STAGES), (i // STAGES) & 1)
        for turn in range(PIECES // lead):
            later = ()
            for j in gl.static_range(lead):
                piece = turn * lead + j
                if j % PER == 0:
                    # A tile's first product ignores the accumulator: zeroing it would cost 128 register moves.
                    first = gl.where(piece == 0, 1, 0) if j == 0 else 0
                    acc = _step(i, first, dy_ring, weight_ring, acc, full, empty, WARPGROUP, STAGES)
                    i += 1
                later += (
                    _finish(
                        piece,
                        fetched[j],
                        gate,
                        up,
                        dgate_up,
                        product,
                        boxes,
                        row,
                        column,
                        new_row,
                        new_column,
                        rows,
                        pairs,
                        r,
                        c,
                        inner,
                        wide,
                        PIECES,
                        lead,
                        ACTIVATION,
                        dtype,
                        layout,
                    ),
                )
            fetched = later
        for _ in range(PIECES // PER, steps):
            s = i % STAGES
            mbarrier.wait(full.index(s), (i // STAGES) & 1)
            token = warpgroup_mma(dy_ring.index(2 * s + WARPGROUP), weight_ring.index(s), acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(token,))
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
            i += 1
        row = new_row
        column = new_column
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
        handoff.store(acc.to(dtype))
    for turn in range(PIECES // lead):
        later = ()
        for j in gl.static_range(lead):
            later += (
                _finish(
                    turn * lead + j,
                    fetched[j],
                    gate,
                    up,
                    dgate_up,
                    product,
                    boxes,
                    row,
                    column,
                    rows,  # there is no tile after the last one
                    column,
                    rows,
                    pairs,
                    r,
                    c,
                    inner,
                    wide,
                    PIECES,
                    lead,
                    ACTIVATION,
                    dtype,
                    layout,
                ),
            )
        fetched = later


@gluon.jit(
    launch_metadata=gate_up_backward_cost, do_not_specialize=["rows", "sixteenths", "depth", "whole", "share", "lanes"]
)
def gate_up_backward_hopper_kernel(
    dy,
    down_weight,
    gate,
    up,
    dgate_up,
    product,
    parts,
    flags,
    rows: gl.int32,
    sixteenths: gl.int32,
    depth: gl.int32,
    whole: gl.int32,
    share: gl.int32,
    lanes: gl.int32,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    PER: gl.constexpr,
    ACTIVATION: gl.constexpr,
    SPLIT: gl.constexpr,
):
    """dgate beside dup [M, 2H] and product [M, H] of dy [M, D], down_weight [D, H] and gate and up [M, H].

    dy and the weight are descriptors. The others are contiguous, with rows of `sixteenths` times 16 numbers, since each
    thread moves 16 bytes. The gradient of the product is rounded to the storage dtype, as it is where a GEMM stores it,
    before the backward of act·mul. A persistent program per SM of three warpgroups: two that compute ROWS / 2 tokens by
    COLUMNS columns each, and one warp that copies. More than ROWS / (2·BOX·PER)·DEPTH summands are needed. `parts`,
    `flags`, `whole`, `share` and SPLIT are as in `gate_up_hopper_kernel`; a part is [ROWS, COLUMNS].
    """
    dtype: gl.constexpr = dy.dtype
    columns = sixteenths * 16
    dy_ring = gl.allocate_shared_memory(dtype, [2 * STAGES, ROWS // 2, DEPTH], dy.layout)
    weight_ring = gl.allocate_shared_memory(dtype, [STAGES, DEPTH, COLUMNS], down_weight.layout)
    handoff = gl.allocate_shared_memory(dtype, [2, ROWS // 2, COLUMNS], gl.SwizzledSharedLayout(8, 1, BOX, [1, 0]))
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=2)
    pair: gl.constexpr = gl.pointer_type(gl.int32)
    gate2 = gate.to(pair, bitcast=True)
    up2 = up.to(pair, bitcast=True)
    dgate_up2 = dgate_up.to(pair, bitcast=True)
    product2 = product.to(pair, bitcast=True)
    # fmt: off
    gl.warp_specialize(
        [
            (_consume, (0, gate2, up2, dgate_up2, product2, dy_ring, weight_ring, handoff.index(0), full, empty,
                        parts, flags, rows, columns, depth, whole, share, lanes, ROWS, COLUMNS, DEPTH, STAGES, GROUP,
                        PER, ACTIVATION, SPLIT)),
            (_consume, (1, gate2, up2, dgate_up2, product2, dy_ring, weight_ring, handoff.index(1), full, empty,
                        parts, flags, rows, columns, depth, whole, share, lanes, ROWS, COLUMNS, DEPTH, STAGES, GROUP,
                        PER, ACTIVATION, SPLIT)),
            (_produce, (dy, down_weight, dy_ring, weight_ring, full, empty, rows, columns, depth, whole, share, lanes,
                        ROWS, COLUMNS, DEPTH, STAGES, GROUP, SPLIT)),
        ],
        [4, 1],
        [240, 24],
    )
    # fmt: on
