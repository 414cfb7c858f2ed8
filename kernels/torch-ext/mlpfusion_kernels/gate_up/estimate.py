"""What a forward tile takes on compute capability 9.0, by waves, bytes and latency: by it a shape gets its tile."""

# Shapes are passed in the order of the formula.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .configs import Config

# 16-bit products of one multiprocessor in a microsecond at the datasheet's 989 TFLOP/s for 132 of them, in flops.
_FLOPS_PER_US = 989e6 / 132

# The slowest of products, latency and memory decides; near a tie they hinder each other.
_SHARPNESS = 4


class Cost(NamedTuple):
    """What was fitted for a tile: its share of the datasheet's rate where products decide, and its first µs."""

    efficiency: float
    start_us: float


class Shared(NamedTuple):
    """What was fitted for all tiles together.

    `latency_us`: until a read arrives; `bytes_per_us`: of the memory, one copy of each operand; `turn_us`: from a tile
    to the next; `epilogue_us`: for an element of the result, where the epilogue is not hidden.
    """

    latency_us: float
    bytes_per_us: float
    turn_us: float
    epilogue_us: float


# Of bench/results/h200-tiles.json, as are the costs of the tiles; `bench/tiles.py` fits and prints them.
FORWARD = Shared(1.03, 3.52e6, 0.0, 8.61e-5)
TRAINING = Shared(1.06, 3.53e6, 0.214, 1.6e-4)


class Work(NamedTuple):
    """What a configuration has to do for a shape, as its busiest multiprocessor sees it.

    `flops` of its products; `waits` for a read, one after another; `moved_bytes` of the whole card; `turns` of tiles;
    `elements` of the result whose epilogue is not hidden.
    """

    flops: float
    waits: float
    moved_bytes: float
    turns: float
    elements: float


def work(config: Config, m: int, depth: int, intermediate: int, multiprocessors: int) -> Work:
    """The work of the forward kernel for x [m, depth] and two weights [intermediate, depth] of 16-bit elements.

    `resident` programs of a multiprocessor take its tiles in turns. In each they wait for reads together, and a program
    has all stages but one under way. A specialised kernel hides its epilogue, others have it after each tile.
    """
    rows, columns = config.tiles(m, intermediate)
    steps = -(-depth // config.block_k)
    busiest = -(-rows * columns // multiprocessors)
    turns = -(-busiest // max(1, config.resident))
    return Work(
        flops=busiest * steps * 4 * config.block_m * config.block_n * config.block_k,
        waits=turns * steps / (config.stages - 1),
        moved_bytes=2 * (2 * intermediate * depth + m * depth + m * intermediate),
        turns=turns,
        elements=0 if config.form == "hopper" else busiest * config.block_m * config.block_n,
    )


def time_us(done: Work, cost: Cost, shared: Shared) -> float:
    """Microseconds that the work takes."""
    products_us = done.flops / (_FLOPS_PER_US * cost.efficiency)
    slowest = (products_us, done.waits * shared.latency_us, done.moved_bytes / shared.bytes_per_us)
    longest: float = sum(part**_SHARPNESS for part in slowest) ** (1 / _SHARPNESS)
    return cost.start_us + longest + done.turns * shared.turn_us + done.elements * shared.epilogue_us
