"""Chooses a shape's tile: by an estimate of its time where costs were fitted, else by the part of the card in use."""

# Shapes are passed in the order of the formula.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .configs import table

if TYPE_CHECKING:
    import torch

    from .configs import Card, Config, Cost, Rule, Shared

# 16-bit products of one multiprocessor in a microsecond at the datasheet's 989 TFLOP/s for 132 of them, in flops.
_FLOPS_PER_US = 989e6 / 132

# The slowest of products, latency and memory decides; near a tie they hinder each other.
_SHARPNESS = 4


def few_tokens(capability: tuple[int, int], dtype: torch.dtype) -> int:
    """The most tokens past which the weights are streamed.

    With 16-bit operands on an H200 that takes 0.87 to 0.97 of the best tile's time for 24 tokens at six shapes, and
    0.98 to 1.10 for 48 at twelve (bench/results/h200-tiles.json). Elsewhere more than 16 were not timed.
    """
    return 32 if capability[0] == 9 and dtype.itemsize == 2 else 16


def choose(
    card: Card,
    dtype: torch.dtype,
    m: int,
    hidden: int,
    intermediate: int,
    *,
    training: bool = False,
    descriptors: bool = True,
) -> Config:
    """The configuration of the forward kernel for x [m, hidden] and weights [intermediate, hidden].

    `training`: gate and up are stored. `descriptors=False`: the pointer form, whatever the card. Errors as `table`.
    """
    chosen = table(card, dtype, descriptors=descriptors)
    rules = chosen.training if training else chosen.forward
    return _fitting(rules, m, hidden, intermediate, card.multiprocessors)


def choose_backward(
    card: Card, dtype: torch.dtype, m: int, hidden: int, intermediate: int, *, descriptors: bool = True
) -> Config:
    """The configuration of the backward kernel for dy [m, hidden] and the down weight [hidden, intermediate]."""
    chosen = table(card, dtype, descriptors=descriptors)
    return _fitting(chosen.backward, m, hidden, intermediate, card.multiprocessors, products=1)


def _fitting(
    rules: tuple[Rule, ...], m: int, depth: int, intermediate: int, multiprocessors: int, *, products: int = 2
) -> Config:
    """The configuration of the least estimated time; where the rule has no costs, the largest that fills the card.

    That is the largest tile for m tokens that leaves no more than a fifth of the card idle, or the smallest where all
    do.
    """
    rule = next(rule for rule in rules if m <= rule.tokens)
    if rule.costs:
        costs = dict(zip(rule.configs, rule.costs, strict=True))
        return min(
            (config for config in rule.configs if config.sums_in(depth)),
            key=lambda one: time_us(
                work(one, m, depth, intermediate, multiprocessors, products=products), costs[one], rule.shared
            ),
        )
    configs = [config for config in rule.configs if config.sums_in(depth)]
    for config in configs:
        rows, columns = config.tiles(m, intermediate)
        together = multiprocessors * max(1, config.resident)
        waves = -(-rows * columns // together)
        if rows * columns * 5 >= waves * together * 4:
            return config
    return configs[-1]


class Work(NamedTuple):
    """What a configuration has to do for a shape, as its busiest multiprocessor sees it.

    `flops` of its products, and `idle_flops`, those of the last round times the part of the card that idles beside them
    (`Shared.relief`). `waits` for a read, one after another; `moved_bytes` of the whole card; `turns` of tiles;
    `elements` of the result whose epilogue is not hidden. `shared`: 1 where tiles are, else 0; `sum_bytes` of the
    partial sums that a program adds to its own, one after another.
    """

    flops: float
    idle_flops: float
    waits: float
    moved_bytes: float
    turns: float
    elements: float
    shared: float
    sum_bytes: float


def work(config: Config, m: int, depth: int, intermediate: int, multiprocessors: int, *, products: int = 2) -> Work:
    """The work of a kernel for x [m, depth] and two weights [intermediate, depth] of 16-bit elements.

    With one of the `products` it is the backward, for dy and one weight, which reads gate and up and stores three
    tensors of their size.

    `resident` programs of a multiprocessor take its tiles in turns. In each they wait for reads together, and a program
    has all stages but one under way. A specialised kernel hides its epilogue, others have it after each tile.
    """
    depth_steps = -(-depth // config.block_k)
    shares = config.shares(m, depth, intermediate, multiprocessors)
    busiest = -(-shares.whole // multiprocessors)
    turns = -(-busiest // max(1, config.resident))
    steps = shares.steps  # a share is no turn: its sums are not what the next tile's products wait for
    # Where tiles and shares end together, a tile's first program has one part less to add.
    others = -(-depth_steps // steps) - (depth_steps % steps == 0) if steps else 0
    elements = config.block_m * config.block_n
    step_flops = 2 * products * elements * config.block_k
    rows, columns = config.tiles(m, intermediate)
    together = multiprocessors * max(1, config.resident)
    rounds, rest = divmod(rows * columns, together)
    if shares.programs:
        last_steps, used = steps, shares.programs / multiprocessors
    else:
        last_steps, used = (busiest - rounds * max(1, config.resident)) * depth_steps, rest / together
    tensors = 1 if products == 2 else 5
    return Work(
        flops=(busiest * depth_steps + steps) * step_flops,
        idle_flops=last_steps * step_flops * max(0.0, 1 - used),
        waits=(turns * depth_steps + steps) / (config.stages - 1),
        moved_bytes=2 * (products * intermediate * depth + m * depth + tensors * m * intermediate),
        turns=turns,
        elements=0 if config.form == "hopper" else busiest * elements,
        shared=1 if shares.programs else 0,
        sum_bytes=others * 4 * products * elements,
    )


def time_us(done: Work, cost: Cost, shared: Shared) -> float:
    """Microseconds that the work takes."""
    products_us = (done.flops - shared.relief * done.idle_flops) / (_FLOPS_PER_US * cost.efficiency)
    slowest = (products_us, done.waits * shared.latency_us, done.moved_bytes / shared.bytes_per_us)
    longest: float = sum(part**_SHARPNESS for part in slowest) ** (1 / _SHARPNESS)
    tiles_us = done.turns * shared.turn_us + done.elements * shared.epilogue_us
    sums_us = done.shared * shared.share_us + done.sum_bytes / shared.sum_bytes_per_us
    return cost.start_us + longest + tiles_us + sums_us
