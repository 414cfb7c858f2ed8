"""What the portable gate/up kernels compile to for cards that are not here: tensor cores, wide accesses, no spills."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import torch
from mlpfusion_kernels.gate_up import choice, configs
from support.gate_up_compiled import ARCHITECTURES, SHIPPED, Case, K, card, each_shipped, expect_good, faults, shipped

if TYPE_CHECKING:
    from support.no_card import Compiler

# Not shipped. Compiled for a card without TMA, descriptors become plain loads that nothing overlaps.
SPILLED = Case("forward", configs.Config("pointer", 128, 128, 32, 1, 4, 3))
WITHOUT_TMA = Case("forward", configs.Config("wide", 128, 64, 64, 1, 8, 3, 1), bias=False, preact=False)


@each_shipped(lambda case: case.config.form != "hopper")
def test_every_shipped_configuration_compiles_well(arch: int, case: Case, compiler: Compiler) -> None:
    expect_good(compiler, arch, case)


def test_every_form_is_shipped_where_its_instructions_are() -> None:
    tma = {(arch, form) for arch in (90, 100) for form in ("pointer", "wide")}
    assert {(arch, case.config.form) for arch, case in SHIPPED} == {
        (80, "pointer"),
        (86, "pointer"),
        (90, "hopper"),
    } | tma


def test_configurations_known_to_be_bad_fail_the_same_check(compiler: Compiler) -> None:
    spilled, without_tma = compiler.compile(80, [each._asdict() for each in (SPILLED, WITHOUT_TMA)])
    assert any("bytes of stack" in fault for fault in faults(80, SPILLED, spilled).slower)
    assert any("spills" in fault for fault in faults(80, SPILLED, spilled).slower)
    assert "no TMA" in faults(80, WITHOUT_TMA, without_tma).broken
    assert without_tma["async_copies"] == 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_shapes_choose_among_at_least_three_configurations(arch: int) -> None:
    here = card(arch)
    shapes = list(itertools.product((1, 16, 17, 64, 65, 256, 512, 8192), (64, K), range(512, 32769, 512)))
    for use in ("forward", "training", "backward"):
        if use == "backward":
            found = {choice.choose_backward(here, torch.bfloat16, *shape) for shape in shapes}
        else:
            found = {choice.choose(here, torch.bfloat16, *shape, training=use == "training") for shape in shapes}
        assert len(found) >= 3
        assert found <= set(shipped(arch, use))  # which are all compiled above
