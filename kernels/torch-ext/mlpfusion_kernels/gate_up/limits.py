"""Which configurations the kernels of a gated MLP can run with on a card."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .configs import table
from .decode import TOKEN_BLOCKS

if TYPE_CHECKING:
    from .configs import Card, Config, Rule
    from .decode import DecodeConfig, StreamTile

# What a configuration is for: the forward, the one that also stores gate and up, the backward, and both kernels for a
# few tokens.
DIRECTIONS = ("forward", "training", "backward", "decode")
FORMS = ("pointer", "wide", "hopper")
MOST_SPLIT = 16

_SIXTEEN_BITS = (torch.float16, torch.bfloat16)


def refusal(config: Config, card: Card, dtype: torch.dtype, direction: str, hidden: int) -> str | None:
    """Why the kernel of that direction cannot run so for operands of `dtype` and sums over `hidden`, or None."""
    if config.form not in FORMS:
        return f"form {config.form!r} is none of {', '.join(FORMS)}"
    if not 1 <= config.split <= (MOST_SPLIT if config.form == "hopper" else 1):
        return f"split must be from 1 to {MOST_SPLIT} for the hopper form, else 1; got {config.split}"
    reason = _form_refusal(config, card, dtype, direction) or _tile_refusal(config, direction)
    if reason is not None:
        return reason
    if not config.sums_in(hidden):
        return f"a sum over {hidden} needs more steps of {config.block_k} than the epilogue has parts, {config.parts}"
    return _too_large(shared_bytes(config, card, dtype, direction), card)


def shared_bytes(config: Config, card: Card, dtype: torch.dtype, direction: str) -> int:
    """The shared memory that a program needs at least, in bytes: its operands in flight, and a part of a result by TMA.

    The specialised backward keeps a whole tile there in place of that part. The instructions of compute capability 9
    and 10 for 64 rows and more read their operands there; elsewhere the stage in use is in registers.
    """
    operands = config.block_m + config.block_n * (1 if direction == "backward" else 2)
    there = card.capability[0] in (9, 10) and config.block_m >= 64 and dtype in _SIXTEEN_BITS
    ring = (config.stages - (not there)) * operands * config.block_k * dtype.itemsize
    parts = 1 if config.form == "hopper" and direction == "backward" else config.parts
    part = config.block_m * config.block_n // parts * dtype.itemsize
    return ring if config.form == "pointer" else ring + part


def decode_refusal(config: DecodeConfig, card: Card, dtype: torch.dtype, m: int) -> str | None:
    """Why the kernels for a few tokens cannot run so for m tokens, or None."""
    if config.tokens not in TOKEN_BLOCKS:
        return f"tokens {config.tokens} is none of {', '.join(map(str, TOKEN_BLOCKS))}"
    if m > config.tokens:
        return f"it is for at most {config.tokens} tokens, not {m}"
    if config.overlap and card.capability < (9, 0):
        return "overlap needs compute capability 9.0 or later"
    if config.overlap and config.down is None:
        return "overlap is between two kernels, and down is None"
    # The down kernel parts its columns among four slices, each at least 16 wide.
    for name, tile, slices in (("gate_up", config.gate_up, 1), ("down", config.down, 4)):
        reason = None if tile is None else _stream_refusal(tile, card, dtype, config.tokens, slices)
        if reason is not None:
            return f"{name}: {reason}"
    return None


def shipped(card: Card, dtype: torch.dtype, direction: str) -> list[Config]:
    """Every configuration of the card's table for "forward", "training" or "backward"."""
    rules: tuple[Rule, ...] = getattr(table(card, dtype), direction)
    return list(dict.fromkeys(config for rule in rules for config in rule.configs))


def _form_refusal(config: Config, card: Card, dtype: torch.dtype, direction: str) -> str | None:
    if config.form == "pointer":
        return None if config.resident == 0 else f"the pointer form has no resident programs, got {config.resident}"
    if dtype not in _SIXTEEN_BITS:
        return f"the {config.form} form is for 16-bit operands, not {dtype}"
    if not 1 <= config.resident <= 8:
        return f"resident must be from 1 to 8, got {config.resident}"
    if config.form == "wide":
        return None if card.capability[0] in (9, 10) else "the wide form is for compute capability 9 and 10"
    if card.capability[0] != 9:
        return "the hopper form is for compute capability 9.0"
    if any(_same_tile(config, one) and config.stages <= one.stages for one in shipped(card, dtype, direction)):
        return None
    return f"the hopper kernels are not written for a {direction} with {_shown(config)}"


def _tile_refusal(config: Config, direction: str) -> str | None:
    """Sizes that no form takes: a dimension of a product is at least 16, and one of a TMA block at most 256."""
    for name in ("block_m", "block_n", "block_k"):
        size = getattr(config, name)
        if name == "block_m" and config.form == "hopper" and size == 192:  # three warpgroups of 64 rows
            continue
        if not _is_power(size) or not 16 <= size <= 256:
            return f"{name} must be a power of two from 16 to 256, got {size}"
    if config.parts not in ((4, 8) if config.form == "hopper" else (1, 2, 4)):
        return f"parts of the {config.form} form cannot be {config.parts}"
    if config.block_n // config.parts < 8:
        return f"a part of {config.block_n // config.parts} columns is narrower than 16 bytes"
    if config.warps not in (4, 8):
        return f"warps must be 4 or 8, got {config.warps}"
    # With one stage the specialised kernels wait for ever: a step gives its stage back only after the next step's wait.
    if not 2 <= config.stages <= 8:
        return f"stages must be from 2 to 8, got {config.stages}"
    if not 1 <= config.group <= 64:
        return f"group must be from 1 to 64, got {config.group}"
    # The specialised kernels share a tile between groups of so many warps.
    operands, groups = (1 if direction == "backward" else 2, config.warpgroups) if config.form == "hopper" else (2, 1)
    sums = config.block_m * config.block_n * operands // (32 * config.warps * groups)
    return _too_many(sums)


def _stream_refusal(tile: StreamTile, card: Card, dtype: torch.dtype, tokens: int, slices: int) -> str | None:
    columns = 16 * slices
    if not _is_power(tile.rows) or not 16 <= tile.rows <= 256:
        return f"rows must be a power of two from 16 to 256, got {tile.rows}"
    if not _is_power(tile.columns) or not columns <= tile.columns <= 1024:
        return f"columns must be a power of two from {columns} to 1024, got {tile.columns}"
    if not 2 <= tile.stages <= 16:
        return f"stages must be from 2 to 16, got {tile.stages}"
    if tile.warps not in (4, 8):
        return f"warps must be 4 or 8, got {tile.warps}"
    # Each slice of the rows is multiplied by each of the tokens.
    sums = slices**2 * tile.rows * tokens // (32 * tile.warps)
    return _too_many(sums) or _too_large(tile.shared_bytes(tokens, dtype.itemsize), card)


def _too_many(sums: int) -> str | None:
    """512 sums in fp32 for each thread are twice its registers; what is near that limit is decided by compiling it."""
    return None if sums < 512 else f"{sums} sums for each thread are more than its registers hold"


def _too_large(needed: int, card: Card) -> str | None:
    if needed <= card.shared_bytes:
        return None
    return f"it needs {needed} bytes of shared memory, and a program has at most {card.shared_bytes} there"


def _is_power(size: int) -> bool:
    return size > 0 and not size & (size - 1)


def _same_tile(config: Config, other: Config) -> bool:
    """Whether two configurations differ by their stages, groups and splits alone."""
    return config._replace(stages=other.stages, group=other.group, split=other.split) == other


def _shown(config: Config) -> str:
    tile = f"{config.block_m} x {config.block_n} in steps of {config.block_k}"
    return f"{tile}, {config.parts} parts, {config.warps} warps, {config.stages} stages, {config.resident} resident"
