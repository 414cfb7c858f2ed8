"""What the warp-specialised kernel of gate's and up's gradients compiles to for sm_90; tests/gpu judges its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from mlpfusion_kernels.gate_up import configs
from mlpfusion_kernels.gate_up.hopper import backward
from mlpfusion_kernels.gate_up.limits import shared_bytes
from support.gate_up_compiled import Case, card, each_shipped, expect_good, shipped

if TYPE_CHECKING:
    from support.no_card import Compiler

AHEAD, BOX = backward.AHEAD.value, backward.BOX.value


@each_shipped(lambda case: case.config.form == "hopper" and case.kernel == "backward")
def test_every_shipped_configuration_moves_whole_rows_under_its_products(
    arch: int, case: Case, compiler: Compiler
) -> None:
    found = expect_good(compiler, arch, case)
    config = case.config
    # Two consumers of four warps and the producer's, which gets the registers of a whole warpgroup and gives most away.
    assert found["threads"] == 3 * 128
    assert found["registers"] * found["threads"] <= 65536
    # Of each consumer two or four steps in a loop with four pieces of the epilogue, and one in the loop for the others.
    under = AHEAD if case.depth > 2 * config.parts * config.block_k else AHEAD // 2
    shares = config.split > 1  # one more, in the loop of its share
    assert found["wgmma"] == 2 * (under + 1 + shares) * config.block_k // 16
    assert found["wgmma_columns"] == [config.block_n]
    # 16 bytes a thread: gate and up, dgate, dup and the product of four pieces, and once more after the last tile.
    moved = BOX * config.block_n * 2 // (128 * 16)
    # With shares: first pieces of gate and up once more, and a partial sum of 64 rows of each consumer, and its flag.
    part = 64 * config.block_n * 4 // (128 * 16)
    more = 2 * (2 * AHEAD * moved + part) if shares else 0
    assert found["wide_loads"] == 2 * 2 * AHEAD * 2 * moved + more
    assert found["wide_stores"] == 3 * 2 * AHEAD * 2 * moved + 2 * part * shares
    assert found["loads"] - found["wide_loads"] == found["stores"] - found["wide_stores"] == 2 * shares
    assert found["tma_stores"] == 0


def test_the_limits_know_how_much_shared_memory_every_shipped_configuration_needs(compiler: Compiler) -> None:
    for config in shipped(90, "backward"):
        if config.form == "hopper":
            (found,) = compiler.compile(90, [Case("backward", config)._asdict()])
            # Beyond the operands and a whole tile: barriers, and what the warps are told to do.
            assert 0 <= found["shared"] - shared_bytes(config, card(90), torch.bfloat16, "backward") <= 1024


def test_the_pieces_of_a_tile_are_as_many_as_the_steps_that_a_sum_needs() -> None:
    """`Config.sums_in` counts parts: with two pieces a step, one fewer would wait for the next tile for ever."""
    for rule in configs.SM90.backward:
        for config in rule.configs:
            if config.form == "hopper":
                assert config.block_m // 2 // BOX == 2 * config.parts
