"""Runs a gated MLP for a few tokens as two weight-streaming kernels, and chooses their tiles by shape."""

# Tensors are passed in the order of the formula.
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from . import gate_up_decode_kernels as kernels
from .cached_kernel import CachedKernel

_GATE_UP = CachedKernel(kernels.gate_up_decode_kernel)
_DOWN = CachedKernel(kernels.down_decode_kernel)

_ALONE: dict[str, Any] = {}
_DEPENDENT: dict[str, Any] = {"launch_pdl": True}

# Tokens that a program may pad to; more than the last are for other kernels.
TOKEN_BLOCKS: tuple[int, ...] = (16, 32, 64)


class StreamTile(NamedTuple):
    """What a program reads at a time: `rows` of weights, `slices` pieces of `block_k` columns; `stages` such tiles."""

    rows: int
    block_k: int
    slices: int
    stages: int
    warps: int

    @property
    def columns(self) -> int:
        """Adjacent columns in a tile."""
        return self.block_k * self.slices

    def shared_bytes(self, tokens: int, itemsize: int) -> int:
        """Shared memory of the tiles in flight."""
        return (self.rows + tokens) * self.columns * itemsize * self.stages


class DecodeConfig(NamedTuple):
    """Both kernels' tiles for up to `tokens` tokens.

    `gate_up.rows` counts rows of both weights. The down projection's columns are parted among `splits` programs. With
    `overlap` (compute capability 9.0 and later) the down kernel starts beside the gate/up kernel; then each gate/up
    program brings `next_bytes` of the down weight, and each down program its first `ahead` tiles, into the L2 cache.
    """

    tokens: int
    gate_up: StreamTile
    down: StreamTile
    splits: int
    overlap: bool
    next_bytes: int
    ahead: int


def workspace_items(hidden: int, config: DecodeConfig) -> int:
    """int32 items that the down kernel needs for its counters and fp32 sums; 0 when nothing is split."""
    if config.splits == 1:
        return 0
    row_tiles = -(-hidden // config.down.rows)
    return (row_tiles + 31) // 32 * 32 + config.splits * row_tiles * config.tokens * config.down.rows


def gate_up_decode(
    x: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    activation: str,
    config: DecodeConfig,
    *,
    down_weight: torch.Tensor | None = None,
    preacts: tuple[torch.Tensor, torch.Tensor] | None = None,
    precision: str = "ieee",
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """act(x·gateᵀ)·(x·upᵀ), both factors rounded to x's dtype first, and the workspace that `down_decode` needs.

    Args:
        x: [M, D], adjacent columns, M <= config.tokens.
        gate_weight, up_weight: [H, D] each, adjacent columns, dtype and device of x.
        gate_bias, up_bias: [H] each, or both None.
        activation: one of ACTIVATIONS.
        config: from `choose_decode`.
        down_weight: contiguous [D, H]; read ahead into the L2 cache as `config.next_bytes` says.
        preacts: contiguous [M, H] tensors that receive gate and up before the activation.
        precision: of float32 products, "ieee" or "tf32".

    Returns:
        The product [M, H], contiguous, and an int32 workspace of `workspace_items(D, config)` items, or None for 0.

    Both results are fresh on the current stream, so calls on several streams, and captured ones, keep apart. Lengths
    and strides must be multiples of 16 bytes.

    Raises:
        ValueError: more tokens than config.tokens, or a length or stride that is no multiple of 16 bytes.
    """
    m, hidden = x.shape
    intermediate = gate_weight.shape[0]
    if m > config.tokens:
        raise ValueError(f"{m} tokens, but the configuration is for at most {config.tokens}")
    product = x.new_empty((m, intermediate))
    items = workspace_items(hidden, config)
    workspace = x.new_empty(items, dtype=torch.int32) if items else None
    # What is absent has no memory; the kernel gets some pointer there and does not use it.
    tensors = (
        x,
        gate_weight,
        up_weight,
        gate_weight if gate_bias is None else gate_bias,
        up_weight if up_bias is None else up_bias,
        product,
        *((product, product) if preacts is None else preacts),
        product if workspace is None else workspace,
        gate_weight if down_weight is None else down_weight,
    )
    next_bytes = config.next_bytes if config.overlap and down_weight is not None else 0
    flags = (activation, gate_bias is not None, preacts is not None, precision, config.overlap, next_bytes)
    _launch_gate_up(tensors, flags, config.tokens, config.gate_up, -(-hidden // config.down.rows) if items else 0)
    return product, workspace


def _launch_gate_up(
    tensors: tuple[torch.Tensor, ...], flags: tuple[Any, ...], tokens: int, tile: StreamTile, counters: int
) -> None:
    x, gate_weight, up_weight = tensors[:3]
    m, hidden = x.shape
    intermediate = gate_weight.shape[0]
    strides = (x.stride(0), gate_weight.stride(0), up_weight.stride(0))
    unit = _unit(x.element_size(), hidden, intermediate, *strides)
    if m == 0:
        return
    lengths = (m, hidden // unit, intermediate // unit, *(stride // unit for stride in strides))
    constants = (*flags, unit, hidden % tile.columns == 0, tokens, *tile[:4])
    rest = (*lengths, counters, hidden * intermediate // unit, *constants)
    key = (x.get_device(), x.dtype, counters > 0, constants, tile.warps)
    _GATE_UP(key, -(-2 * intermediate // tile.rows), tensors, rest, tile.warps)


def down_decode(
    product: torch.Tensor,
    down_weight: torch.Tensor,
    down_bias: torch.Tensor | None,
    workspace: torch.Tensor | None,
    config: DecodeConfig,
    *,
    precision: str = "ieee",
) -> torch.Tensor:
    """product·downᵀ + bias, [M, H] -> a fresh [M, D]; the same bits whatever order the programs run in.

    Args:
        product, workspace: as `gate_up_decode` returned them, which must be the launch before this one on the stream:
            it zeroes the counters. A workspace serves once.
        down_weight: [D, H], adjacent columns, dtype and device of the product.
        down_bias: [D] or None.
        config: the one that `gate_up_decode` was given.
        precision: of float32 products, "ieee" or "tf32".

    Raises:
        ValueError: a length or stride that is no multiple of 16 bytes, or a workspace of another size.
    """
    m, intermediate = product.shape
    hidden = down_weight.shape[0]
    needed, found = workspace_items(hidden, config), 0 if workspace is None else workspace.numel()
    if found != needed:
        raise ValueError(f"{hidden} rows of the down weight need a workspace of {needed} items, got {found}")
    stride = down_weight.stride(0)
    unit = _unit(product.element_size(), hidden, intermediate, stride)
    y = product.new_empty((m, hidden))
    if m == 0:
        return y
    tensors = (
        product,
        down_weight,
        down_weight if down_bias is None else down_bias,
        y,
        y if workspace is None else workspace,
    )
    tile = config.down
    row_tiles = -(-hidden // tile.rows)
    constants = (
        unit,
        down_bias is not None,
        intermediate % tile.columns == 0,
        precision,
        config.tokens,
        *tile[:4],
        config.splits,
        config.overlap,
        config.ahead if config.overlap else 0,
    )
    rest = (m, hidden // unit, intermediate // unit, stride // unit, row_tiles, *constants)
    key = (product.get_device(), product.dtype, constants, tile.warps)
    _DOWN(key, row_tiles * config.splits, tensors, rest, tile.warps, _DEPENDENT if config.overlap else _ALONE)
    return y


def _unit(itemsize: int, *lengths: int) -> int:
    """The largest of 16, 8 and 4 elements that divides every length, at least 16 bytes."""
    bits = 0
    for length in lengths:
        bits |= length
    for unit in (16, 8, 4):
        if unit * itemsize >= 16 and not bits & (unit - 1):
            return unit
    got = ", ".join(map(str, lengths))
    raise ValueError(f"lengths and row strides must be multiples of {16 // itemsize} elements (16 bytes), got {got}")


def choose_decode(
    m: int,
    hidden: int,
    intermediate: int,
    sms: int,
    itemsize: int,
    *,
    shared_bytes: int = 99 * 1024,
    overlap: bool = False,
) -> DecodeConfig:
    """The configuration for `m` tokens (at most 64), by shape alone.

    Args:
        m: tokens.
        hidden, intermediate: D and H of the MLP.
        sms: multiprocessors of the card.
        itemsize: bytes per element.
        shared_bytes: the most shared memory that a program may have there: 99 KiB at compute capability 8.6 and 8.9,
            163 at 8.0, 227 at 9.0 and 10.0.
        overlap: whether the card runs a dependent kernel beside the one before it (9.0 and later).

    Raises:
        ValueError: more than 64 tokens.
    """
    tokens = next((block for block in TOKEN_BLOCKS if m <= block), None)
    if tokens is None:
        raise ValueError(f"{m} tokens are too many; at most {TOKEN_BLOCKS[-1]}")
    gate_up = _tile(2 * intermediate, hidden, 1, tokens, sms, itemsize, shared_bytes)
    row_tiles = -(-hidden // 64)
    splits = max(1, min(16, 2 * sms // row_tiles, intermediate * itemsize // 1024))
    down = _tile(hidden, intermediate, splits, tokens, sms, itemsize, shared_bytes)
    return DecodeConfig(tokens, gate_up, down, splits, overlap, 0, 8)


def _tile(rows: int, columns: int, splits: int, tokens: int, sms: int, itemsize: int, shared_bytes: int) -> StreamTile:
    """Tiles so small that every multiprocessor has one, then as many stages as let all programs be there at once."""
    height = 64 if -(-rows // 64) * splits >= sms else 32
    programs_per_sm = max(1, -(-(-(-rows // height) * splits) // sms))
    tile = StreamTile(height, 128 // itemsize, 64 // height, 1, 4)
    # Each program costs 1 KiB of shared memory beside its own.
    budget = (shared_bytes + 1024) // programs_per_sm - 1024
    deepest = min(8, 1 + -(-columns // (splits * tile.columns)))
    stages = min(deepest, budget // tile.shared_bytes(tokens, itemsize))
    return tile._replace(stages=max(2, stages))
