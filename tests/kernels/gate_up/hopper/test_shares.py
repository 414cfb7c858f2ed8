"""Tiles beyond whole waves: every step of their sums has one program. Their values are judged on a GPU (tests/gpu)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mlpfusion_kernels import Weights
from mlpfusion_kernels.gate_up import configs, launch
from mlpfusion_kernels.gate_up.configs import Card, Config, Shares

if TYPE_CHECKING:
    from collections.abc import Iterator

TILES = [
    Config("hopper", 128, 128, 64, 8, 4, 4, 1, split=8),
    Config("hopper", 128, 64, 64, 4, 4, 6, 1, split=2),
    Config("hopper", 192, 64, 64, 4, 4, 5, 1, split=3),
]


@given(
    m=st.integers(1, 20000),
    depth=st.integers(1, 8000),
    intermediate=st.integers(1, 30000),
    multiprocessors=st.integers(1, 200),
    config=st.sampled_from(TILES),
    split=st.integers(1, 16),
)
def test_each_step_has_one_program_and_no_program_more_than_two_tiles(
    m: int, depth: int, intermediate: int, multiprocessors: int, config: Config, split: int
) -> None:
    config = config._replace(split=split)
    shares = config.shares(m, depth, intermediate, multiprocessors)
    rows, columns = config.tiles(m, intermediate)
    steps, rest = -(-depth // config.block_k), rows * columns - shares.whole
    assert shares.whole % multiprocessors == 0 or split == 1
    assert (rest > 0) == (shares.programs > 0)
    assert shares.programs <= multiprocessors
    if split == 1:
        assert rest == 0
        return
    assert rest == rows * columns % multiprocessors
    if rest:
        dealt = [0] * (rest * steps)
        for number in range(shares.programs):
            pieces = list(pieces_of(shares, number, rest, steps))
            for tile, begin, end in pieces:
                for step in range(begin, end):
                    dealt[tile * steps + step] += 1
            # Two pieces at most: the last one alone may begin a sum, and what comes before it goes on with one.
            assert len(pieces) <= 2
            assert all(begin > 0 for _, begin, _ in pieces[:-1])
        assert set(dealt) == {1}
        assert shares.programs <= rest * split + shares.lanes * split


def pieces_of(shares: Shares, number: int, rest: int, steps: int) -> Iterator[tuple[int, int, int]]:
    """What `share_of` and `piece_of` give a program: tiles from the first shared one on, and their steps."""
    lane = number % shares.lanes
    total = -(-(rest - lane) // shares.lanes) * steps
    first = min(number // shares.lanes * shares.steps, total)
    last = min(first + shares.steps, total)
    while first < last:
        local = first // steps
        end = min(last, (local + 1) * steps)
        yield lane + local * shares.lanes, first - local * steps, end - local * steps
        first = end


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float16)


class Call(NamedTuple):
    key: Any
    programs: int
    described: Any
    tensors: Any
    rest: Any
    options: Any


@pytest.mark.parametrize("config", TILES, ids=lambda config: f"{config.block_m}x{config.block_n}")
@pytest.mark.parametrize("h", [72, 1400])
def test_partial_sums_have_their_place_and_flags_that_are_not_raised(
    monkeypatch: pytest.MonkeyPatch, config: Config, h: int
) -> None:
    calls: list[Call] = []
    monkeypatch.setattr(launch, "_hopper", lambda: [lambda *arguments: calls.append(Call(*arguments))])
    monkeypatch.setattr(launch, "card", lambda _: Card((9, 0), 7, 227 * 1024))
    launch.gate_up_forward(
        random(300, 832), Weights(random(h, 832), random(h, 832), random(832, h)), "silu", True, config
    )
    ((key, programs, _, tensors, rest, _),) = calls
    shares = config.shares(300, 832, h, 7)
    assert shares.programs > 0
    assert (shares.whole > 0) == (h == 1400)
    *_, parts, flags = tensors
    assert (parts.shape, parts.dtype) == ((shares.programs, config.block_m, 2 * config.block_n), torch.float32)
    assert (flags.shape, flags.dtype) == ((shares.programs, config.block_m // 64, 128), torch.int32)
    assert not flags.any()
    assert rest[3:6] == (shares.whole, shares.steps, shares.lanes)
    assert rest[-1] is True
    assert key[2] == rest[6:]
    assert programs == (7 if shares.whole else shares.programs)


def test_the_backwards_partial_sums_have_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Call] = []
    monkeypatch.setattr(launch, "_hopper", lambda: [None, lambda *arguments: calls.append(Call(*arguments))])
    monkeypatch.setattr(launch, "card", lambda _: Card((9, 0), 7, 227 * 1024))
    config = Config("hopper", 128, 256, 64, 8, 4, 3, 1, split=4)
    operands = (random(300, 1344), random(1344, 720), random(300, 720), random(300, 720))
    launch.gate_up_backward(*operands, "silu", config)
    ((key, programs, _, tensors, rest, _),) = calls
    *_, parts, flags = tensors
    # Nine tiles: two of 21 steps are shared, side by side, by three programs each.
    assert config.shares(300, 1344, 720, 7) == (7, 7, 6, 2)
    assert (parts.shape, flags.shape) == ((6, 128, 256), (6, 2, 128))
    assert not flags.any()
    assert rest[3:6] == (7, 7, 2)
    assert (rest[-1], key[2], programs) == (True, rest[6:], 7)


def test_nothing_is_shared_where_all_waves_are_whole() -> None:
    for config in TILES:
        assert config.shares(3 * config.block_m, 832, 7 * config.block_n, 7) == (21, 0, 0, 1)
        assert config._replace(split=1).shares(config.block_m, 832, config.block_n, 7) == (1, 0, 0, 1)


def test_what_ships_for_compute_capability_9_has_each_specialised_tile_with_a_split_and_without() -> None:
    for rules in configs.SM90:
        for rule in rules:
            alone = {config for config in rule.configs if config.form == "hopper" and config.split == 1}
            shared = {config._replace(split=1) for config in rule.configs if config.split > 1}
            assert alone == shared
