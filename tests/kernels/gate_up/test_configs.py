"""The choice of a tile: from the card's table, for any shape, or refused with the reason."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mlpfusion_kernels.gate_up import configs
from mlpfusion_kernels.gate_up.choice import choose, choose_backward
from mlpfusion_kernels.gate_up.configs import Card, Config

KIB = 1024
A100 = Card((8, 0), 108, 163 * KIB)
A40 = Card((8, 6), 84, 99 * KIB)
ORIN = Card((8, 7), 16, 163 * KIB)
L40S = Card((8, 9), 142, 99 * KIB)
H100 = Card((9, 0), 132, 227 * KIB)
B200 = Card((10, 0), 148, 227 * KIB)
RTX_5090 = Card((12, 0), 170, 99 * KIB)
INTERPRETER = Card((0, 0), 1, 0)
CARDS = (A100, A40, ORIN, L40S, H100, B200, RTX_5090, INTERPRETER)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

any_choice = given(
    card=st.sampled_from(CARDS),
    dtype=st.sampled_from(DTYPES),
    m=st.one_of(st.integers(1, 300), st.integers(1, 2**33)),
    hidden=st.integers(1, 1024).map(lambda units: 16 * units),
    intermediate=st.integers(1, 4096).map(lambda units: 16 * units),
    training=st.booleans(),
    descriptors=st.booleans(),
)


@any_choice
def test_every_shape_has_a_configuration_of_the_table_that_covers_it(
    card: Card, dtype: torch.dtype, m: int, hidden: int, intermediate: int, training: bool, descriptors: bool
) -> None:
    table = configs.table(card, dtype, descriptors=descriptors)
    forward = choose(card, dtype, m, hidden, intermediate, training=training, descriptors=descriptors)
    backward = choose_backward(card, dtype, m, hidden, intermediate, descriptors=descriptors)
    for config, rules in ((forward, table.training if training else table.forward), (backward, table.backward)):
        assert config in {one for rule in rules for one in rule.configs if m <= rule.tokens}
        assert config.sums_in(hidden)
        rows, columns = config.tiles(m, intermediate)
        assert (rows - 1) * config.block_m < m <= rows * config.block_m
        assert (columns - 1) * config.block_n < intermediate <= columns * config.block_n
        programs = config.programs(m, intermediate, card.multiprocessors)
        assert 1 <= programs <= rows * columns
        assert programs == rows * columns or programs == card.multiprocessors * config.resident


@any_choice
def test_descriptors_are_for_the_cards_and_dtypes_that_have_them(
    card: Card, dtype: torch.dtype, m: int, hidden: int, intermediate: int, training: bool, descriptors: bool
) -> None:
    forward = choose(card, dtype, m, hidden, intermediate, training=training, descriptors=descriptors)
    backward = choose_backward(card, dtype, m, hidden, intermediate, descriptors=descriptors)
    by_descriptors = descriptors and dtype is not torch.float32 and card in {H100, B200}
    assert {forward.form != "pointer", backward.form != "pointer"} == {by_descriptors}
    if card is not H100:
        assert "hopper" not in {forward.form, backward.form}


@pytest.mark.parametrize("hidden", [256, 272, 512, 528, 4096])
def test_a_specialised_kernel_has_more_steps_than_parts(hidden: int) -> None:
    # With as many, the last part of the last tile would wait for a stage that nobody fills: the kernel would hang.
    chosen = choose(H100, torch.bfloat16, 8192, hidden, 8192)
    assert (chosen.form == "hopper") == (hidden > 256)
    assert chosen.form != "hopper" or math.ceil(hidden / chosen.block_k) > chosen.parts
    assert not Config("hopper", 128, 128, 64, 4, 4, 4, 1).sums_in(256)
    backward = choose_backward(H100, torch.bfloat16, 8192, hidden, 8192)
    assert (backward.form == "hopper") == (hidden > 512)


@pytest.mark.parametrize("card", [card for card in CARDS if card is not INTERPRETER])
def test_few_tokens_get_a_low_tile(card: Card) -> None:
    for dtype in DTYPES:
        assert choose(card, dtype, 16, 768, 3072).block_m == 16
        assert choose_backward(card, dtype, 16, 768, 3072).block_m == 16


def test_a_card_of_99_kib_never_gets_the_tiles_of_one_with_more() -> None:
    assert configs.table(A100, torch.bfloat16) == configs.table(ORIN, torch.bfloat16) == configs.SM80
    for card in (A40, L40S, RTX_5090):
        assert configs.table(card, torch.bfloat16) == configs.PORTABLE


def test_what_no_kernel_can_do_is_refused_with_what_can() -> None:
    turing = Card((7, 5), 40, 64 * KIB)
    with pytest.raises(ValueError, match=r"compute capability 7\.5: the gate/up kernels need 8\.0 or later"):
        choose(turing, torch.float16, 1, 16, 16)
    with pytest.raises(
        ValueError, match=r"dtype torch\.float64: .* torch\.float32, torch\.float16 and torch\.bfloat16"
    ):
        choose_backward(A100, torch.float64, 1, 16, 16)
