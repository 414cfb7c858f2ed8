"""What passes as a tuned configuration: nothing that would hang a card or that is far from what a search makes."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlpfusion_kernels.gate_up import search, tuned
from mlpfusion_kernels.gate_up.configs import Card, Config
from mlpfusion_kernels.gate_up.decode import DecodeConfig, StreamTile
from mlpfusion_kernels.gate_up.limits import DIRECTIONS, decode_refusal, refusal, shipped
from support import rings, tunings_made
from support.tunings_made import BF16, SHAPE, entry, forward, warned, write

if TYPE_CHECKING:
    from pathlib import Path

CARDS: dict[str, Card] = tunings_made.CARDS | {"RTX 5090": Card((12, 0), 170, 99 * 1024, "NVIDIA GeForce RTX 5090")}
file = tunings_made.file  # a fixture
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
TILED = tuple(direction for direction in DIRECTIONS if direction != "decode")


# ---- what cannot hang ------------------------------------------------------------------------------------------------


def ends(stages: int, steps: int, parts: int, tiles: int) -> bool:
    """Whether the ring of the specialised kernels comes to its end.

    The copying warp fills the stages in order, a stage for the second time once its first content is given back. The
    computing ones wait for a step's stage, give back that of the step before, and in a tile's first steps, one for each
    part of the epilogue, wait for the next step's too before they go on.
    """
    given_back = 0

    def comes(step: int) -> bool:
        return step < steps * tiles and step - stages < given_back

    for step in range(steps * tiles):
        within = step % steps
        if not comes(step):
            return False
        if within > 0:
            given_back = step
        if within < parts and not comes(step + 1):
            return False
        if within == steps - 1:
            given_back = step + 1
    return True


def test_the_ring_needs_two_stages_and_a_step_more_than_parts() -> None:
    for stages, steps, parts, tiles in product(range(1, 6), range(4, 20), (4, 8), (1, 2, 3)):
        if steps >= parts:
            assert ends(stages, steps, parts, tiles) == (stages >= 2 and steps > parts)


@pytest.mark.parametrize("direction", TILED)
def test_every_specialised_configuration_that_passes_ends(direction: str) -> None:
    card = CARDS["H100"]
    tiles = [config for config in shipped(card, BF16, direction) if config.form == "hopper"]
    assert tiles
    passed = set()
    for one, stages, hidden in product(tiles, range(-1, 9), (64, 256, 272, 512, 576, 768)):
        config = one._replace(stages=stages)
        if refusal(config, card, BF16, direction, hidden) is None:
            passed.add(stages)
            assert ends(stages, -(-hidden // config.block_k), config.parts, 3), config
    assert min(passed) == 2


@pytest.mark.parametrize("direction", TILED)
def test_an_entry_with_one_stage_is_ignored(file: Path, direction: str) -> None:
    card = CARDS["H100"]
    sizes = {"device": card.name, "capability": card.capability, "direction": direction}

    def ask() -> Config:
        if direction == "backward":
            return tuned.backward_config(card, BF16, *SHAPE)
        found: Config = forward(card, training=direction == "training")
        return found

    usual = ask()
    for one in shipped(card, BF16, direction):
        write(file, entry(one._replace(stages=1), **sizes))
        found, (text,) = warned(ask)
        assert found == usual
        assert "stages must be from 2 to 8, got 1" in text


# ---- what passes is what a search makes, or near it ------------------------------------------------------------------


wild = st.sampled_from([-(2**31) + 1, -64, -1, 0, 1, 2, 3, 5, 6, 12, 24, 96, 512, 1024, 2**20, 2**31 - 1])
sizes = st.sampled_from([16, 32, 64, 128, 256])


@st.composite
def configs(draw: Any, card: Card, dtype: torch.dtype, direction: str) -> Config:
    """A tile near one that is shipped, or any, with up to two fields that may be anything."""
    config: Config = draw(st.sampled_from(shipped(card, dtype, direction)))
    if draw(st.booleans()):
        small = st.sampled_from([1, 2, 3, 4, 8])
        tile, (group, warps, stages) = [draw(sizes) for _ in range(3)], [draw(small) for _ in range(3)]
        config = Config(config.form, tile[0], tile[1], tile[2], group, warps, stages, config.resident)
    for name in draw(st.lists(st.sampled_from(Config._fields), max_size=2)):
        value = draw(st.sampled_from(["pointer", "wide", "hopper", ""])) if name == "form" else draw(wild | sizes)
        config = config._replace(**{name: value})
    return config


def is_sound(config: Config, card: Card, dtype: torch.dtype, direction: str, hidden: int) -> bool:
    """What the kernels rely on, told from their sources and not from the rules that are tested here."""
    powers = {1 << place for place in range(4, 9)}
    blocks = {config.block_m, config.block_n, config.block_k} <= powers and config.block_n % config.parts == 0
    counts = config.warps in {4, 8} and 2 <= config.stages <= 8 and 1 <= config.group <= 64
    if config.form == "pointer":
        return blocks and counts and config.resident == 0 and config.parts in {1, 2, 4}
    described = card.capability[0] in (9, 10) and dtype.itemsize == 2 and 1 <= config.resident <= 8
    if config.form == "wide":
        return blocks and counts and described and config.parts in {1, 2, 4}
    # Other numbers of stages and of rows of tiles done together are the only things that a search changes here.
    alike = [one._replace(stages=config.stages, group=config.group) for one in shipped(card, dtype, direction)]
    steps = -(-hidden // config.block_k)
    return counts and described and config in alike and ends(config.stages, steps, config.parts, 2)


@settings(max_examples=rings.examples(600))
@given(
    data=st.data(),
    card=st.sampled_from(sorted(CARDS)),
    dtype=st.sampled_from(DTYPES),
    direction=st.sampled_from(TILED),
    hidden=st.sampled_from([16, 64, 256, 512, 528, 768, 4096]),
)
def test_whatever_passes_is_sound(data: Any, card: str, dtype: torch.dtype, direction: str, hidden: int) -> None:
    config = data.draw(configs(CARDS[card], dtype, direction))
    if refusal(config, CARDS[card], dtype, direction, hidden) is None:
        assert is_sound(config, CARDS[card], dtype, direction, hidden)


tiles = st.builds(StreamTile, sizes | wild, sizes | wild, st.sampled_from([2, 3, 4, 8]) | wild, st.sampled_from([4, 8]))
streams = st.builds(DecodeConfig, st.sampled_from([16, 32, 64]) | wild, tiles, st.none() | tiles, st.booleans())


@settings(max_examples=rings.examples(600))
@given(
    config=streams,
    card=st.sampled_from(sorted(CARDS)),
    dtype=st.sampled_from(DTYPES),
    m=st.sampled_from([1, 2, 16, 32, 64, 128]),
)
def test_the_same_for_a_few_tokens(config: DecodeConfig, card: str, dtype: torch.dtype, m: int) -> None:
    here = CARDS[card]
    if decode_refusal(config, here, dtype, m) is not None:
        return
    assert m <= config.tokens <= 64
    assert not config.overlap or (config.down is not None and here.capability >= (9, 0))
    # The down kernel multiplies four slices of its rows by four of the tokens, and keeps a quarter of that.
    for tile, slices in ((config.gate_up, 1), (config.down, 4)):
        if tile is not None:
            powers = {1 << place for place in range(4, 11)}
            assert {tile.rows, tile.columns // slices, tile.columns} <= powers
            assert 2 <= tile.stages <= 16
            assert tile.shared_bytes(config.tokens, dtype.itemsize) <= here.shared_bytes
            assert slices**2 * tile.rows * config.tokens // (32 * tile.warps) < 512


@pytest.mark.parametrize("card", sorted(CARDS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_whatever_a_search_makes_passes_and_is_sound(card: str, dtype: torch.dtype) -> None:
    here = CARDS[card]
    for direction, m in product(TILED, (1, 17, 64, 8192)):
        for config in search.candidates(here, dtype, direction, m, *SHAPE[1:]):
            assert isinstance(config, Config)
            assert refusal(config, here, dtype, direction, SHAPE[1]) is None
            assert is_sound(config, here, dtype, direction, SHAPE[1])
    for m in (1, 16):
        for config in search.candidates(here, dtype, "decode", m, *SHAPE[1:]):
            assert isinstance(config, DecodeConfig)
            assert decode_refusal(config, here, dtype, m) is None
