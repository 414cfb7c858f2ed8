"""What the warp-specialised gate/up kernel compiles to for sm_90; tests/gpu judges its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion_kernels.activations import HEAVIEST
from support.gate_up_compiled import Case, each_shipped, expect_good

if TYPE_CHECKING:
    from support.no_card import Compiler

WARPGROUP = 128


@each_shipped(lambda case: case.config.form == "hopper" and case.kernel == "forward")
def test_every_shipped_configuration_is_some_consumers_fed_and_emptied_by_tma(
    arch: int, case: Case, compiler: Compiler
) -> None:
    found = expect_good(compiler, arch, case)
    config = case.config
    consumers = config.block_m // 64
    # Consumers and the producer's warp, which gets the registers of a whole warpgroup and gives most of them away.
    assert found["threads"] == (consumers + 1) * WARPGROUP
    assert found["registers"] * found["threads"] <= 65536
    # Gate and up are one operand: no product is as narrow as one of them.
    assert found["wgmma_columns"] == [2 * config.block_n]
    # Each consumer has the pieces under its products written out, a loop for the other steps, and one for its share.
    pieces = min(config.parts, 4) if case.preact or case.activation == HEAVIEST else config.parts
    shares = config.split > 1
    assert found["wgmma"] == consumers * (pieces + 1 + shares) * config.block_k // 16
    # Under a tile's products and after the last tile.
    assert found["tma_stores"] == consumers * 2 * pieces * (3 if case.preact else 1)
    # Gate, up, and the rows of each consumer, in the loop over whole tiles and in that over a share, or its two pieces.
    loads, rest = divmod(found["tma_loads"], 2 + consumers)
    assert rest == 0
    assert loads in ({2, 3} if shares else {1})
    # 64 rows by gate and up columns of each consumer, four elements of a thread at a time, and its flag.
    assert found["stores"] == (consumers * (64 * 2 * config.block_n // (4 * WARPGROUP) + 1) if shares else 0)
    assert (found["loads"] > 0) == (case.bias or shares)
