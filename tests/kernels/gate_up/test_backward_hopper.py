"""What the warp-specialised kernel of gate's and up's gradients compiles to for sm_90; tests/gpu judges its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion_kernels.gate_up import backward_hopper
from support.gate_up_compiled import Case, each_shipped, expect_good

if TYPE_CHECKING:
    from support.no_card import Compiler

PIECES = backward_hopper.PIECES.value


@each_shipped(lambda case: case.config.form == "hopper" and case.kernel == "backward")
def test_every_shipped_configuration_has_one_copy_of_the_consumers_code(
    arch: int, case: Case, compiler: Compiler
) -> None:
    found = expect_good(compiler, arch, case)
    config = case.config
    assert config.parts == PIECES  # by which the launcher cuts the boxes
    # Two consumers and the producer's warp, which gets the registers of a whole warpgroup and gives most of them away.
    assert found["threads"] == 3 * 128
    assert found["registers"] * found["threads"] <= 65536
    # Both warpgroups run the same instructions: the steps with a piece of the epilogue, and a loop for the others.
    assert found["wgmma"] == (PIECES + 1) * config.block_k // 16
    assert found["wgmma_columns"] == [config.block_n]
    # dgate, dup and the product, under a tile's products and after the last tile.
    assert found["tma_stores"] == 3 * 2 * PIECES
    assert (found["loads"], found["stores"]) == (0, 0)
