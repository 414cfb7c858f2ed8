"""Steps of the specialised kernel's products, and a program's share of the tiles that whole waves leave (stream-K)."""

# Kernels are called by position, and their parameters have Gluon's types, not Python's.
# ruff: noqa: PLR0917  # Gluon is not all of Python
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from .gluon_names import load_box

# Threads of a warpgroup; each has a flag of its own.
THREADS = gl.constexpr(128)


@gluon.jit
def share_of(whole, share, lanes, tiles, steps):
    """This program's share of the tiles from `whole` on: its number, its lane, its first step there and its end.

    Every `lanes`-th tile is a lane's. Its steps, counted from the first one of its first tile, are dealt out to the
    programs with numbers of this lane; an empty share ends where it begins. A program's share comes before those of
    programs that the card has started earlier, so that whoever waits for the next share waits for a program that runs
    already, or has run.
    """
    shared = tiles - whole
    programs = gl.cdiv(gl.cdiv(shared, lanes) * steps, share) * lanes
    number = programs - 1 - gl.program_id(0)
    number = gl.where(number < 0, programs, number)  # there is no share of that number: it is empty
    lane = number % lanes
    total = gl.cdiv(shared - lane, lanes) * steps
    first = gl.minimum(number // lanes * share, total)
    return number, lane, first, gl.minimum(first + share, total)


@gluon.jit
def piece_of(first, end, whole, lane, lanes, steps):
    """The first tile of what a share still has, from step `first` on: its number, and the steps of its sum."""
    local = first // steps
    return whole + lane + local * lanes, first - local * steps, gl.minimum(end - local * steps, steps)


@gluon.jit
def load_step(
    x,
    gate_weight,
    up_weight,
    x_ring,
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
    WARPGROUPS: gl.constexpr,
):
    """Fill the i-th stage with step k of a tile: each warpgroup's rows of x, and gate rows above up rows."""
    stage_bytes: gl.constexpr = (WARPGROUPS * ROWS + 2 * COLUMNS) * DEPTH * 2
    s = i % STAGES
    ready = full.index(s)
    mbarrier.wait(empty.index(s), ((i // STAGES) & 1) ^ 1)
    mbarrier.expect(ready, stage_bytes)
    load_box(gate_weight, [column * COLUMNS, k * DEPTH], ready, weight_ring.index(2 * s))
    load_box(up_weight, [column * COLUMNS, k * DEPTH], ready, weight_ring.index(2 * s + 1))
    for w in gl.static_range(WARPGROUPS):
        load_box(x, [(row * WARPGROUPS + w) * ROWS, k * DEPTH], ready, x_ring.index(WARPGROUPS * s + w))


@gluon.jit
def _flags_of(flags, place):
    """The address of each thread's flag at a place."""
    t = gl.arange(0, THREADS, gl.BlockedLayout([1], [32], [4], [0]))
    return (flags + place * THREADS + t).to(gl.int64)


@gluon.jit
def _raise_flags(flags, place):
    """Each thread: what it has stored can be read by whoever sees its flag."""
    gl.inline_asm_elementwise(
        "st.release.gpu.global.u32 [$1], 1; mov.u32 $0, 0;",
        "=r,l",
        [_flags_of(flags, place)],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _await_flags(flags, place):
    """Each thread waits for the flag of the thread that holds the same elements elsewhere."""
    gl.inline_asm_elementwise(
        "{ .reg .pred missing; again: ld.acquire.gpu.global.u32 $0, [$1]; setp.eq.u32 missing, $0, 0;"
        " @missing bra again; }",
        "=r,l",
        [_flags_of(flags, place)],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _by_threads(block):
    """[64, C] as a product has it -> [C / 8, 512]: of each thread four elements that are neighbours, thread by thread.

    Partial sums are written and read by the same thread of another program, so their order in memory is free.
    """
    columns: gl.constexpr = block.shape[1]
    return block.reshape([4, 2, 8, columns // 8, 4, 2]).permute((3, 0, 2, 4, 1, 5)).reshape([columns // 8, 4 * THREADS])


@gluon.jit
def _as_product(block, acc):
    """What `_by_threads` gave, in the layout of `acc`, which it came from."""
    groups: gl.constexpr = block.shape[0]
    split = block.reshape([groups, 4, 8, 4, 2, 2]).permute((1, 4, 2, 0, 3, 5))
    return gl.convert_layout(split.reshape([64, 8 * groups]), acc.type.layout)


@gluon.jit
def sum_share(
    WARPGROUP: gl.constexpr,
    acc,
    parts,
    flags,
    x_ring,
    weight_ring,
    full,
    empty,
    tiles,
    steps,
    whole,
    share,
    lanes,
    STAGES: gl.constexpr,
    WARPGROUPS: gl.constexpr,
    COLUMNS_LAST: gl.constexpr,
):
    """One warpgroup's rows of this program's share of the last tiles.

    What it adds to a sum that another program has begun goes to memory, in fp32. To a sum that it begins itself it adds
    what the next shares have of it, in their order, so that results are the same in each run. They begin with it, so
    there is little to wait for. A stage of `weight_ring` is [columns, depth], or, with COLUMNS_LAST, [depth, columns].

    -> the sums of the tile that it has begun, that tile, or -1 if it began none, and how many stages have been used.
    """
    by_threads = _by_threads(acc)
    g = gl.arange(0, by_threads.shape[0], gl.SliceLayout(1, by_threads.type.layout))
    t = gl.arange(0, by_threads.shape[1], gl.SliceLayout(0, by_threads.type.layout))
    size: gl.constexpr = acc.shape[0] * acc.shape[1]
    part = parts + WARPGROUP * size + g[:, None] * by_threads.shape[1] + t[None, :]
    number, lane, first, end_of_share = share_of(whole, share, lanes, tiles, steps)
    own = -1
    done = 0
    i = 0
    for _ in range(2):  # a share has a piece in one tile and another in the next, or one alone
        tile, begin, end = piece_of(first, end_of_share, whole, lane, lanes, steps)
        for k in range(begin, end):
            s = i % STAGES
            mbarrier.wait(full.index(s), (i // STAGES) & 1)
            operand = weight_ring.index(s) if COLUMNS_LAST else weight_ring.index(s).permute((1, 0))
            mine = x_ring.index(WARPGROUPS * s + WARPGROUP)
            token = warpgroup_mma(mine, operand, acc, use_acc=k > begin, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(token,))
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), pred=k > begin)
            i += 1
        acc = warpgroup_mma_wait(0, deps=(acc,))
        some = end > begin
        if some:
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
        if some & (begin > 0):
            gl.store(part + number * WARPGROUPS * size, _by_threads(acc))
            _raise_flags(flags, number * WARPGROUPS + WARPGROUP)
        begun = some & (begin == 0)
        own = gl.where(begun, tile, own)
        done = gl.where(begun, end, done)
        first = gl.minimum(first + gl.maximum(end - begin, 0), end_of_share)
    others = gl.where(own >= 0, gl.cdiv(steps - done, share), 0)
    for other in range(1, 1 + others):
        place = number + other * lanes
        _await_flags(flags, place * WARPGROUPS + WARPGROUP)
        acc += _as_product(gl.load(part + place * WARPGROUPS * size), acc)
    return acc, own, i
