"""Runs a gated MLP for a few tokens as two weight-streaming kernels, and chooses their tiles by shape."""

# Tensors are passed in the order of the formula.
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..launching.cached import CachedKernel
from . import decode_kernels as kernels

if TYPE_CHECKING:
    import torch

_GATE_UP = CachedKernel(kernels.gate_up_decode_kernel)
_DOWN = CachedKernel(kernels.down_decode_kernel)

_ALONE: dict[str, Any] = {}
_DEPENDENT: dict[str, Any] = {"launch_pdl": True}

# Tokens that a program may pad to; more than the last are for other kernels.
TOKEN_BLOCKS: tuple[int, ...] = (16, 32, 64)

# Four slices of 16 rows fill the 64 rows of a matrix instruction.
_DOWN_SLICES = 4

# Shared memory that the card takes for each resident program beside the program's own.
_RESERVED = 1024


class StreamTile(NamedTuple):
    """What a program reads at a time: `columns` adjacent columns of `rows` rows of weights; `stages` such tiles."""

    rows: int
    columns: int
    stages: int
    warps: int

    def shared_bytes(self, tokens: int, itemsize: int) -> int:
        """Shared memory of the tiles in flight."""
        return (self.rows + tokens) * self.columns * itemsize * self.stages


class DecodeConfig(NamedTuple):
    """Both kernels' tiles for up to `tokens` tokens.

    `gate_up.rows` counts rows of both weights. Where `down` is None, cuBLAS is to run the down projection. With
    `overlap` (compute capability 9.0 and later) the down kernel starts beside the gate/up kernel, brings the head of
    its weight into the L2 cache and waits there.
    """

    tokens: int
    gate_up: StreamTile
    down: StreamTile | None
    overlap: bool


def gate_up_decode(
    x: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    activation: str,
    config: DecodeConfig,
    *,
    preacts: tuple[torch.Tensor, torch.Tensor] | None = None,
    precision: str = "ieee",
) -> torch.Tensor:
    """act(x·gateᵀ)·(x·upᵀ), both factors rounded to x's dtype first: a fresh, contiguous [M, H].

    Args:
        x: [M, D], adjacent columns, M <= config.tokens.
        gate_weight, up_weight: [H, D] each, adjacent columns, dtype and device of x.
        gate_bias, up_bias: [H] each, or both None.
        activation: one of ACTIVATIONS.
        config: from `choose_decode`.
        preacts: contiguous [M, H] tensors that receive gate and up before the activation.
        precision: of float32 products, "ieee" or "tf32".

    Raises:
        ValueError: more tokens than config.tokens, or a length or stride that is no multiple of 16 bytes.
    """
    m, hidden = x.shape
    intermediate = gate_weight.shape[0]
    if m > config.tokens:
        raise ValueError(f"{m} tokens, but the configuration is for at most {config.tokens}")
    strides = (x.stride(0), gate_weight.stride(0), up_weight.stride(0))
    unit = _unit(x.element_size(), hidden, intermediate, *strides)
    product = x.new_empty((m, intermediate))
    if m == 0:
        return product
    # Absent outputs are not allocated; a dummy pointer is passed instead.
    tensors = (
        x,
        gate_weight,
        up_weight,
        gate_weight if gate_bias is None else gate_bias,
        up_weight if up_bias is None else up_bias,
        product,
        *((product, product) if preacts is None else preacts),
    )
    tile = config.gate_up
    flags = (activation, gate_bias is not None, preacts is not None, precision, config.overlap)
    constants = (*flags, unit, hidden % tile.columns == 0, config.tokens, *tile[:3])
    rest = (m, hidden // unit, intermediate // unit, *(stride // unit for stride in strides), *constants)
    key = (x.get_device(), x.dtype, constants, tile.warps)
    _GATE_UP(key, -(-2 * intermediate // tile.rows), tensors, rest, tile.warps)
    return product


def down_decode(
    product: torch.Tensor,
    down_weight: torch.Tensor,
    down_bias: torch.Tensor | None,
    config: DecodeConfig,
    *,
    precision: str = "ieee",
) -> torch.Tensor:
    """product·downᵀ + bias, [M, H] -> a fresh, contiguous [M, D].

    Args:
        product: [M, H], contiguous, M <= config.tokens.
        down_weight: [D, H], adjacent columns, dtype and device of the product.
        down_bias: [D] or None.
        config: the one that `gate_up_decode` was given.
        precision: of float32 products, "ieee" or "tf32".

    Raises:
        ValueError: more tokens than config.tokens, a length or stride that is no multiple of 16 bytes, or a
            configuration that leaves this projection to cuBLAS.
    """
    m, intermediate = product.shape
    hidden = down_weight.shape[0]
    tile = config.down
    if tile is None:
        raise ValueError("config.down is None: this configuration leaves the down projection to F.linear")
    if m > config.tokens:
        raise ValueError(f"{m} tokens, but the configuration is for at most {config.tokens}")
    stride = down_weight.stride(0)
    unit = _unit(product.element_size(), hidden, intermediate, stride)
    y = product.new_empty((m, hidden))
    if m == 0:
        return y
    # Two tiles per program, 16 KiB: 13.1 us for the article's weights against 13.3 without; 256 KiB gain nothing more
    # there and cost 5% at D = 4096 (bench/results/h200-decode.json). The instruction takes no address beside 16 bytes.
    ahead = 2 * tile.columns
    if not config.overlap or ahead > intermediate or down_weight.data_ptr() % 16:
        ahead = 0
    flags = (unit, down_bias is not None, intermediate % tile.columns == 0, precision)
    constants = (*flags, config.tokens, *tile[:3], _DOWN_SLICES, config.overlap, ahead)
    tensors = (product, down_weight, down_weight if down_bias is None else down_bias, y)
    rest = (m, hidden // unit, intermediate // unit, stride // unit, *constants)
    key = (product.get_device(), product.dtype, constants, tile.warps)
    _DOWN(key, -(-hidden // tile.rows), tensors, rest, tile.warps, _DEPENDENT if config.overlap else _ALONE)
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

    `down` is given for up to 16 tokens of 2 bytes each element: behind the same gate/up kernel it took 0.4 to 21% less
    time than cuBLAS for the whole MLP at seven shapes on an H200. For 17 to 64 tokens no form of it won everywhere.

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
    gate_up = _gate_up_tile(intermediate, tokens, sms, itemsize, shared_bytes)
    if tokens > 16 or itemsize > 2:
        return DecodeConfig(tokens, gate_up, None, overlap=False)
    return DecodeConfig(tokens, gate_up, _down_tile(hidden, intermediate, tokens, sms, itemsize, shared_bytes), overlap)


# The times in these comments are us on an H200 from bench/results/h200-decode.json.


def _gate_up_tile(intermediate: int, tokens: int, sms: int, itemsize: int, shared_bytes: int) -> StreamTile:
    """The tile whose programs all are resident at once, where so many can be."""
    # A wave that fills the card in part costs a whole one: 3.4 programs of 64 rows per multiprocessor, three of them
    # resident, take 74.1; half as many programs of 128 rows, all resident, 67.5.
    per_sm = -(-2 * intermediate // 64) / sms
    if per_sm <= 1:
        rows, resident = 64, 1
    elif 3 < per_sm <= 4:
        rows, resident = 128, 2
    else:
        rows, resident = 64, 3
    # Pieces of 256 bytes are faster than of 128 for 16 tokens (0.73 programs: 8.7 against 9.0) and 32, slower for 64
    # (10.1 against 9.6), where fewer stages fit.
    wide, narrow = StreamTile(rows, 256 // itemsize, 5, 4), StreamTile(rows, 128 // itemsize, 6, 4)
    deep = _deepest(wide, tokens, itemsize, resident, shared_bytes)
    # Without tensor cores a thread holds its part of both operands in registers: 256 bytes of fp32 are too many.
    if tokens <= 32 and itemsize == 2 and deep.stages >= 3:
        return deep
    return _deepest(narrow, tokens, itemsize, resident, shared_bytes)


def _down_tile(hidden: int, intermediate: int, tokens: int, sms: int, itemsize: int, shared_bytes: int) -> StreamTile:
    tile = StreamTile(16, _DOWN_SLICES * 128 // itemsize, 10, 4)
    resident = 1 if -(-hidden // tile.rows) <= sms else 2
    deep = _deepest(tile, tokens, itemsize, resident, shared_bytes)
    # Ten stages leave no room beside a program of the gate/up kernel. That pays where a program streams for long (64
    # tiles: 63.9 against 69.5) and costs where it does not (12 tiles: 13.9 against 13.1).
    if deep.stages == tile.stages and intermediate >= 32 * tile.columns:
        return deep
    return deep._replace(stages=min(deep.stages, 6))


def _deepest(tile: StreamTile, tokens: int, itemsize: int, resident: int, shared_bytes: int) -> StreamTile:
    """As many of the tile's stages, at least two, as let `resident` programs share a multiprocessor."""
    budget = (shared_bytes + _RESERVED) // resident - _RESERVED
    stages = budget // tile._replace(stages=1).shared_bytes(tokens, itemsize)
    return tile._replace(stages=max(2, min(tile.stages, stages)))
