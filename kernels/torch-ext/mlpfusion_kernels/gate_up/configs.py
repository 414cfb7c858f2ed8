"""The tiles of the gate/up kernels: a table for each kind of card, with the costs that were fitted for them."""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch


class Card(NamedTuple):
    """What decides about tiles: the CUDA compute capability, (0, 0) for Triton's interpreter, and two sizes.

    `shared_bytes` is the most shared memory that one program may have. `name`, as the driver tells it, decides nothing
    here; tuned configurations are found by it.
    """

    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int
    name: str = ""


# How many tiles that read the same columns of a weight are summed side by side.
_LANES = 4


class Config(NamedTuple):
    """How a kernel runs.

    `form` is "pointer", "wide" (by tensor descriptors; in the backward the TMA kernel) or "hopper" (warp-specialised,
    for compute capability 9.0; it needs more steps of the sum than parts of the epilogue). A tile is `block_m` tokens
    by `block_n` columns of the intermediate, summed in steps of `block_k`, its epilogue in `parts` steps. A "pointer"
    grid has one program for each tile, the others `resident` for each multiprocessor, as many as fit there together.
    `group` rows of tiles are done together.

    With a `split` above 1, for the specialised kernels, tiles beyond the last whole wave are shared: see `Shares`.
    """

    form: str
    block_m: int
    block_n: int
    block_k: int
    parts: int
    warps: int
    stages: int
    resident: int = 0
    group: int = 8
    split: int = 1

    @property
    def warpgroups(self) -> int:
        """Of a specialised kernel, those that compute: each takes 64 rows of a tile."""
        return max(2, self.block_m // 64)

    def sums_in(self, depth: int) -> bool:
        """Whether this form can run a sum of that length.

        Each part of a specialised kernel's epilogue waits for the stage after its own step. A tile without a step more
        than parts would wait in its last part for the next tile, and the last tile for ever.
        """
        return self.form != "hopper" or -(-depth // self.block_k) > self.parts

    def tiles(self, m: int, intermediate: int) -> tuple[int, int]:
        """Tiles of an [m, intermediate] result: rows of them, and how many are in a row."""
        return -(-m // self.block_m), -(-intermediate // self.block_n)

    def programs(self, m: int, intermediate: int, multiprocessors: int) -> int:
        """The size of the grid."""
        rows, columns = self.tiles(m, intermediate)
        return min(rows * columns, multiprocessors * self.resident) if self.resident else rows * columns

    def shares(self, m: int, depth: int, intermediate: int, multiprocessors: int) -> Shares:
        """How the tiles beyond whole waves are shared; nothing is where there are none, or with a `split` of 1."""
        rows, columns = self.tiles(m, intermediate)
        together = multiprocessors * max(1, self.resident)
        rest = rows * columns % together
        if self.split == 1 or not rest:
            return Shares(rows * columns, 0, 0, 1)
        # Each lane needs a program for each of its tiles, or a share would reach into a third one.
        lanes = next(n for n in range(min(rows, rest, _LANES), 0, -1) if -(-rest // n) <= together // n)
        most = -(-rest // lanes)
        steps = most * -(-depth // self.block_k)
        each = -(-steps // min(together // lanes, most * self.split))
        return Shares(rows * columns - rest, each, lanes * -(-steps // each), lanes)


class Shares(NamedTuple):
    """Tiles [0, whole) are summed by one program each; the steps of the others' sums are shared (stream-K).

    Their steps, tile after tile, are dealt out to `programs` programs, `steps` for each; the last may get fewer. No
    program gets more steps than a tile has, so its share lies in two tiles at most. Whoever has a tile's first step
    adds up what the others have of it, which comes by way of memory, in fp32 and in the order of the steps.

    After Osama and others, "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the
    GPU" (PPoPP 2023).
    """

    whole: int
    steps: int
    programs: int
    lanes: int


class Cost(NamedTuple):
    """What was fitted for a tile: its share of the datasheet's rate where products decide, and its first µs."""

    efficiency: float
    start_us: float


class Shared(NamedTuple):
    """What was fitted for all tiles together.

    `latency_us`: until a read arrives; `bytes_per_us`: of the memory, one copy of each operand; `turn_us`: from a tile
    to the next; `epilogue_us`: for an element of the result, where the epilogue is not hidden. Where tiles are shared,
    `share_us` for that, and `sum_bytes_per_us` of the partial sums that a program adds to its own. `relief`: how much
    faster a multiprocessor is, of its time, while all others idle (they leave it power and the memory).
    """

    latency_us: float
    bytes_per_us: float
    turn_us: float
    epilogue_us: float
    share_us: float
    sum_bytes_per_us: float
    relief: float


# Of bench/results/h200-tiles.json, as are the costs of the tiles; `bench/tiles.py` fits and prints them.
FORWARD = Shared(1.06, 3.52e6, 0.0, 4.67e-5, 3.05, 8.27e4, 0.417)
TRAINING = Shared(1.08, 3.53e6, 0.346, 1.01e-4, 3.03, 9.24e4, 0.517)
BACKWARD = Shared(0.929, 3.64e6, 3.44, 1.08e-4, 4.08, 7.58e4, 0.352)


class Rule(NamedTuple):
    """For up to `tokens` tokens these configurations, from the largest tile to the smallest.

    Where their `costs` were fitted, one for each, the least estimated time decides, else the part of the card in use.
    """

    tokens: int
    configs: tuple[Config, ...]
    costs: tuple[Cost, ...] = ()
    shared: Shared = FORWARD


class Table(NamedTuple):
    """The rules of a kind of card, by tokens ascending; training's forward also stores gate and up."""

    forward: tuple[Rule, ...]
    training: tuple[Rule, ...]
    backward: tuple[Rule, ...]


ANY = sys.maxsize

# Chosen by what they compile to, not timed: for the 99 KiB of sm_86, sm_89 and sm_120.
_PORTABLE_FORWARD = (
    Rule(16, (Config("pointer", 16, 32, 64, 1, 4, 4),)),
    Rule(64, (Config("pointer", 64, 64, 64, 1, 4, 3), Config("pointer", 64, 32, 64, 1, 4, 3))),
    Rule(
        ANY,
        (
            Config("pointer", 128, 128, 32, 2, 8, 3),
            Config("pointer", 128, 64, 64, 2, 8, 3),
            Config("pointer", 64, 64, 64, 1, 4, 3),
            Config("pointer", 64, 32, 64, 1, 4, 3),
        ),
    ),
)
_PORTABLE_BACKWARD = (
    Rule(16, (Config("pointer", 16, 64, 64, 1, 4, 4),)),
    Rule(64, (Config("pointer", 64, 64, 64, 2, 4, 3),)),
    Rule(
        ANY,
        (
            Config("pointer", 128, 128, 32, 2, 8, 3),
            Config("pointer", 128, 64, 64, 2, 8, 3),
            Config("pointer", 64, 64, 64, 2, 4, 3),
        ),
    ),
)
PORTABLE = Table(_PORTABLE_FORWARD, _PORTABLE_FORWARD, _PORTABLE_BACKWARD)

# The same with more bytes in flight, for the 163 KiB of sm_80 and sm_87; not timed.
_SM80_FORWARD = (
    Rule(16, (Config("pointer", 16, 64, 128, 1, 4, 4), Config("pointer", 16, 32, 64, 1, 4, 4))),
    Rule(64, (Config("pointer", 64, 64, 64, 1, 4, 4), Config("pointer", 64, 32, 64, 1, 4, 4))),
    Rule(
        ANY,
        (
            Config("pointer", 128, 128, 32, 2, 8, 4),
            Config("pointer", 128, 64, 64, 2, 8, 3),
            Config("pointer", 64, 64, 64, 1, 4, 4),
            Config("pointer", 64, 32, 64, 1, 4, 4),
        ),
    ),
)
SM80 = Table(_SM80_FORWARD, _SM80_FORWARD, _PORTABLE_BACKWARD)

_SM90_FEW = Rule(16, (Config("wide", 16, 64, 128, 1, 4, 4, 2), Config("wide", 16, 32, 128, 1, 4, 4, 3)))


# The most programs that share a tile beyond whole waves, and one more where shares and tiles do not end together.
_SPLITS = (2, 4)


def _with_splits(fitted: dict[Config, Cost]) -> dict[Config, Cost]:
    """The specialised tiles also with each split, whose costs are those of the tile."""
    special = [config for config in fitted if config.form == "hopper"]
    return fitted | {config._replace(split=split): fitted[config] for split in _SPLITS for config in special}


def _sm90(shared: Shared, fitted: dict[Config, Cost]) -> tuple[Rule, ...]:
    fitted = _with_splits(fitted)
    return (_SM90_FEW, Rule(ANY, tuple(fitted), tuple(fitted.values()), shared))


# Costs from bench/results/h200-tiles.json, printed by `bench/tiles.py --show`.
_SM90_FORWARD = _sm90(
    FORWARD,
    {
        Config("hopper", 128, 128, 64, 8, 4, 4, 1): Cost(0.747, 7.65),
        Config("hopper", 128, 128, 64, 4, 4, 4, 1): Cost(0.739, 7.38),
        Config("hopper", 192, 64, 64, 4, 4, 5, 1): Cost(0.733, 7.75),
        Config("hopper", 128, 64, 64, 4, 4, 6, 1): Cost(0.723, 7.71),
        Config("wide", 128, 128, 64, 2, 8, 4, 1): Cost(0.705, 6.94),
        Config("wide", 64, 64, 128, 1, 4, 4, 1): Cost(0.716, 6.89),
        Config("wide", 64, 64, 64, 1, 4, 4, 2): Cost(0.795, 6.18),
        Config("wide", 64, 32, 128, 1, 4, 4, 1): Cost(1.0, 6.19),
        Config("wide", 64, 32, 64, 1, 4, 4, 3): Cost(0.573, 5.66),
    },
)
# Storing gate and up as well takes more registers than the coarse epilogue leaves.
_SM90_TRAINING = _sm90(
    TRAINING,
    {
        Config("hopper", 128, 128, 64, 8, 4, 4, 1): Cost(0.734, 9.45),
        Config("hopper", 192, 64, 64, 4, 4, 4, 1): Cost(0.727, 9.27),
        Config("hopper", 128, 64, 64, 4, 4, 6, 1): Cost(0.723, 8.68),
        Config("wide", 128, 128, 64, 2, 8, 4, 1): Cost(0.692, 7.21),
        Config("wide", 64, 64, 128, 1, 4, 4, 1): Cost(0.702, 6.69),
        Config("wide", 64, 64, 64, 1, 4, 4, 2): Cost(0.803, 6.00),
        Config("wide", 64, 32, 128, 1, 4, 4, 1): Cost(0.847, 6.06),
        Config("wide", 64, 32, 64, 1, 4, 4, 3): Cost(0.607, 5.50),
    },
)
_BACKWARD_FITTED = _with_splits(
    {
        Config("hopper", 128, 256, 64, 8, 4, 3, 1): Cost(0.766, 11.16),
        Config("wide", 128, 128, 64, 2, 8, 4, 1): Cost(0.709, 6.55),
        Config("wide", 64, 128, 64, 2, 4, 3, 2): Cost(0.709, 4.92),
        Config("wide", 64, 64, 64, 2, 4, 4, 3): Cost(0.578, 3.68),
    }
)
_SM90_BACKWARD = (
    Rule(16, (Config("wide", 16, 64, 128, 1, 4, 4, 3),)),
    Rule(ANY, tuple(_BACKWARD_FITTED), tuple(_BACKWARD_FITTED.values()), BACKWARD),
)
SM90 = Table(_SM90_FORWARD, _SM90_TRAINING, _SM90_BACKWARD)


def _sm100_forward(stages: int) -> tuple[Rule, ...]:
    return (
        Rule(16, (Config("wide", 16, 64, 128, 1, 4, 4, 2), Config("wide", 16, 32, 128, 1, 4, 4, 3))),
        Rule(64, (Config("wide", 64, 64, 64, 2, 4, 4, 2),)),
        Rule(
            ANY,
            (
                Config("wide", 128, 128, 64, 2, 8, stages, 1),
                Config("wide", 128, 64, 64, 2, 8, 4, 1),
                Config("wide", 64, 64, 64, 2, 4, 4, 2),
            ),
        ),
    )


# Chosen by what they compile to, not timed. Storing gate and up as well takes the room of the largest tile's 4th stage.
SM100 = Table(
    forward=_sm100_forward(4),
    training=_sm100_forward(3),
    backward=(
        Rule(16, (Config("wide", 16, 64, 128, 1, 4, 4, 3),)),
        Rule(64, (Config("wide", 64, 64, 64, 1, 4, 4, 2),)),
        Rule(ANY, (Config("wide", 128, 128, 64, 2, 8, 3, 1), Config("wide", 64, 64, 64, 1, 4, 4, 2))),
    ),
)

# For cards that have descriptors, but operands that cannot be had by them: right before fast.
_PLAIN_FORWARD = (
    Rule(16, (Config("pointer", 16, 32, 64, 1, 4, 4),)),
    Rule(ANY, (Config("pointer", 128, 64, 64, 2, 8, 3), Config("pointer", 64, 32, 64, 1, 4, 3))),
)
_PLAIN_BACKWARD = (
    Rule(16, (Config("pointer", 16, 64, 64, 1, 4, 4),)),
    Rule(ANY, (Config("pointer", 128, 64, 64, 2, 8, 3), Config("pointer", 64, 64, 64, 2, 4, 3))),
)
PLAIN = Table(_PLAIN_FORWARD, _PLAIN_FORWARD, _PLAIN_BACKWARD)

# 32-bit operands, with TF32 and without: without it each thread multiplies by itself, which takes small tiles.
_FLOAT32 = (
    Rule(16, (Config("pointer", 16, 32, 32, 1, 4, 3),)),
    Rule(ANY, (Config("pointer", 64, 32, 16, 1, 4, 4),)),
)
FLOAT32 = Table(_FLOAT32, _FLOAT32, _FLOAT32)

# The interpreter's cost is per program and per operation, not per element.
_INTERPRETED = (Rule(ANY, (Config("pointer", 64, 64, 64, 1, 4, 1),)),)
INTERPRETED = Table(_INTERPRETED, _INTERPRETED, _INTERPRETED)


def table(card: Card, dtype: torch.dtype, *, descriptors: bool = True) -> Table:
    """The table for a card and the operands' dtype.

    Raises ValueError for a compute capability below 8.0 and for dtypes other than float32, float16 and bfloat16.
    """
    major, minor = card.capability
    if dtype not in {torch.float32, torch.float16, torch.bfloat16}:
        raise ValueError(f"dtype {dtype}: the gate/up kernels know torch.float32, torch.float16 and torch.bfloat16")
    if major == 0:
        return INTERPRETED
    if major < 8:
        raise ValueError(f"compute capability {major}.{minor}: the gate/up kernels need 8.0 or later")
    if dtype is torch.float32:
        return FLOAT32
    if major in {9, 10}:
        return PLAIN if not descriptors else SM90 if major == 9 else SM100
    return SM80 if card.shared_bytes >= 163 * 1024 else PORTABLE
