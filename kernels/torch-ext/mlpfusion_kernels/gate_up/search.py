"""The configurations that tuning tries for a shape on a card, the likeliest first."""

# Shapes are passed in the order of the formula.
# ruff: noqa: PLR0917

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import torch

from .choice import choose, choose_backward
from .configs import Config
from .decode import DecodeConfig, StreamTile
from .limits import decode_refusal, refusal, shared_bytes, shipped
from .tuned import bucket, shipped_decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .configs import Card

# Shared memory that the card takes for each resident program beside the program's own.
_RESERVED = 1024


def chosen(
    card: Card, dtype: torch.dtype, direction: str, m: int, hidden: int, intermediate: int
) -> Config | DecodeConfig:
    """What runs where nothing was tuned."""
    if direction == "decode":
        return shipped_decode(card, dtype, m, hidden, intermediate)
    if direction == "backward":
        return choose_backward(card, dtype, m, hidden, intermediate)
    return choose(card, dtype, m, hidden, intermediate, training=direction == "training")


def candidates(
    card: Card, dtype: torch.dtype, direction: str, m: int, hidden: int, intermediate: int
) -> list[Config | DecodeConfig]:
    """The shipped configuration, then others in the order of their distance from it; each can run there."""
    first = chosen(card, dtype, direction, m, hidden, intermediate)
    if isinstance(first, DecodeConfig):
        streams = [first, *_streams(first, dtype)]
        return list(dict.fromkeys(each for each in streams if decode_refusal(each, card, dtype, m) is None))
    others = shipped(card, dtype, direction)
    others += [
        config._replace(stages=config.stages - fewer, group=group)
        for config in others
        for fewer, group in product((0, 1), (4, 8, 16))
        if config.form == "hopper" and m > 64
    ]
    others += _backward(card, dtype, m) if direction == "backward" else _forward(card, dtype, direction, m)
    fitting = [each for each in others if refusal(each, card, dtype, direction, hidden) is None]
    return list(dict.fromkeys((first, *sorted(fitting, key=lambda config: _distance(config, first)))))


def crossed(ranked: list[Config | DecodeConfig]) -> DecodeConfig | None:
    """The best gate/up tile beside the best down tile, for configurations for a few tokens, the best first.

    Of the two tiles `candidates` changes one at a time; None where their best is among the ranked already.
    """
    streams = [config for config in ranked if isinstance(config, DecodeConfig)]
    if not streams:
        return None
    best = streams[0]
    other = next((each for each in streams if each.gate_up != best.gate_up and each.down != best.down), None)
    return None if other is None or best.down is None or other.down is None else best._replace(down=other.down)


def _forward(card: Card, dtype: torch.dtype, direction: str, m: int) -> Iterator[Config]:
    if dtype is torch.float32:
        yield from _tiles(card, dtype, direction, m, rows=(16, 32, 64), columns=(16, 32, 64), steps=(16, 32, 64))
        return
    yield from _tiles(
        card, dtype, direction, m, rows=(16, 32, 64, 128, 256), columns=(32, 64, 128), steps=(32, 64, 128)
    )


def _backward(card: Card, dtype: torch.dtype, m: int) -> Iterator[Config]:
    if dtype is torch.float32:
        return _tiles(card, dtype, "backward", m, rows=(16, 32, 64), columns=(16, 32, 64), steps=(16, 32, 64))
    return _tiles(card, dtype, "backward", m, rows=(16, 32, 64, 128), columns=(64, 128, 256), steps=(32, 64, 128))


def _tiles(
    card: Card,
    dtype: torch.dtype,
    direction: str,
    m: int,
    *,
    rows: tuple[int, ...],
    columns: tuple[int, ...],
    steps: tuple[int, ...],
) -> Iterator[Config]:
    """Tiles of the portable kernels that are no taller than the tokens and keep each thread's sums in registers."""
    form = "wide" if card.capability[0] in (9, 10) and dtype is not torch.float32 else "pointer"
    lowest = min(64, bucket(m)) if m > 64 else bucket(m) // 2
    halves = 1 if direction == "backward" else 2
    for block_m, block_n, block_k, warps in product(rows, columns, steps, (4, 8)):
        sums = block_m * block_n * halves // (32 * warps)
        most = 64 if direction == "backward" else 128
        if not lowest <= block_m <= max(16, bucket(m)) or not most // 8 <= sums <= most:
            continue
        if form == "wide" and block_k < 64:  # a row of a TMA block is best 128 bytes
            continue
        parts = 1 if sums < 64 // (3 - halves) else 2
        for stages in _deepest(Config(form, block_m, block_n, block_k, parts, warps, 5), card, dtype, direction):
            config = Config(form, block_m, block_n, block_k, parts, warps, stages)
            yield config if form == "pointer" else config._replace(resident=_resident(config, card, dtype, direction))


def _deepest(config: Config, card: Card, dtype: torch.dtype, direction: str) -> list[int]:
    """The two largest numbers of stages, up to the configuration's own, that the shared memory holds."""
    fitting = (
        stages
        for stages in range(config.stages, 1, -1)
        if shared_bytes(config._replace(stages=stages), card, dtype, direction) + _RESERVED <= card.shared_bytes
    )
    return list(fitting)[:2]


def _resident(config: Config, card: Card, dtype: torch.dtype, direction: str) -> int:
    """Programs that a multiprocessor holds at once, by shared memory and by registers: 255 of each thread's at most."""
    by_memory = (card.shared_bytes + _RESERVED) // (shared_bytes(config, card, dtype, direction) + 2 * _RESERVED)
    sums = config.block_m * config.block_n * (1 if direction == "backward" else 2) // (32 * config.warps)
    by_registers = 65536 // (32 * config.warps * min(sums + 64, 255))
    return max(1, min(by_memory, by_registers, 3))


def _streams(first: DecodeConfig, dtype: torch.dtype) -> Iterator[DecodeConfig]:
    """First other gate/up tiles, then other down tiles, and none."""
    itemsize = dtype.itemsize
    for rows, row_bytes, stages in product((32, 64, 128), (128, 256, 512), (3, 4, 5, 6, 8)):
        yield first._replace(gate_up=StreamTile(rows, row_bytes // itemsize, stages, first.gate_up.warps))
    if first.down is None:
        return
    for rows, row_bytes, stages in product((16, 32), (256, 512, 1024), (3, 4, 6, 8, 10)):
        yield first._replace(down=StreamTile(rows, row_bytes // itemsize, stages, first.down.warps))
    yield first._replace(down=None, overlap=False)


def _distance(config: Config, other: Config) -> float:
    """How many times a size doubles between the two."""
    sizes = zip(config[1:], other[1:], strict=True)
    return 4 * (config.form != other.form) + sum(abs(math.log2((a or 1) / (b or 1))) for a, b in sizes)
