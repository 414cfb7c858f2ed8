"""The estimate of a forward tile's time: what it counts by hand, and which tile it gives to a shape."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mlpfusion_kernels.gate_up import configs
from mlpfusion_kernels.gate_up.choice import choose, few_tokens, time_us, work
from mlpfusion_kernels.gate_up.configs import FORWARD, Card, Config, Cost

H100 = Card((9, 0), 132, 227 * 1024)
SPECIALISED = Config("hopper", 128, 128, 64, 8, 4, 4, 1)
PORTABLE = Config("wide", 64, 64, 64, 1, 4, 4, 2)
COST = Cost(0.8, 6.0)
FITTED = [
    (config, cost, rule.shared)
    for rules in (configs.SM90.forward, configs.SM90.training)
    for rule in rules
    if rule.costs
    for config, cost in zip(rule.configs, rule.costs, strict=True)
    if config.split == 1  # partial sums are written and read up to the next whole wave, and there no longer
]

sizes = st.integers(1, 1024).map(lambda units: 16 * units)


def test_the_work_of_a_full_card_counted_by_hand() -> None:
    # 132 tiles of 128 x 128, one for each multiprocessor, in 16 steps of 64
    done = work(SPECIALISED, 128 * 12, 1024, 128 * 11, 132)
    assert done.flops == 2 * 128 * (2 * 128) * 1024
    assert done.waits == 16 / 3
    assert done.moved_bytes == 2 * (2 * 1408 * 1024 + 1536 * 1024 + 1536 * 1408)
    assert (done.turns, done.elements, done.idle_flops) == (1, 0, 0)


def test_flops_beside_which_the_card_idles_are_those_of_the_last_round() -> None:
    # 33 tiles are a quarter of the card, and 165 are a whole round and a quarter
    for tiles, rounds in ((33, 1), (165, 2)):
        done = work(SPECIALISED, 128, 1024, 128 * tiles, 132)
        assert done.flops == rounds * 2 * 128 * (2 * 128) * 1024
        assert done.idle_flops == 0.75 * 2 * 128 * (2 * 128) * 1024
        relieved = time_us(done._replace(idle_flops=0.0), COST, FORWARD)
        assert time_us(done, COST, FORWARD) < relieved
    # Shared by two programs each, the quarter is half as long, on half of the card.
    done = work(SPECIALISED._replace(split=2), 128, 1024, 128 * 165, 132)
    assert done.flops == 1.5 * 2 * 128 * (2 * 128) * 1024
    assert done.idle_flops == 0.5 * 0.5 * 2 * 128 * (2 * 128) * 1024


def test_two_programs_of_a_multiprocessor_wait_together_and_show_their_epilogues() -> None:
    # 3 tiles of 64 x 64 for the busiest of 4 multiprocessors, which holds two programs
    done = work(PORTABLE, 64 * 3, 640, 64 * 4, 4)
    assert (done.turns, done.waits) == (2, 2 * 10 / 3)
    assert done.elements == 3 * 64 * 64


def test_the_work_of_shared_tiles_counted_by_hand() -> None:
    # 140 tiles on 132 multiprocessors: one whole for each, and 8 of 16 steps each, in 64 shares of 2 steps
    done = work(SPECIALISED._replace(split=8), 128 * 14, 1024, 128 * 10, 132)
    assert done.flops == 2 * 128 * (2 * 128) * (1024 + 2 * 64)
    assert done.waits == (16 + 2) / 3
    assert (done.turns, done.shared) == (1, 1)
    assert done.sum_bytes == 7 * 4 * 128 * 256  # a tile's first program has the parts of 7 more to add
    # Of 15 steps in shares of 2, a tile that begins within one needs parts of 8 more.
    assert work(SPECIALISED._replace(split=8), 128 * 14, 960, 128 * 10, 132).sum_bytes == 8 * 4 * 128 * 256


def test_the_work_of_the_backward_is_one_product_and_more_tensors() -> None:
    config = Config("hopper", 128, 256, 64, 8, 4, 3, 1)
    done = work(config, 1536, 1024, 256 * 11, 132, products=1)
    assert done.flops == 2 * 128 * 256 * 1024
    assert done.moved_bytes == 2 * (2816 * 1024 + 1536 * 1024 + 5 * 1536 * 2816)
    # 14 rows by 10 columns of tiles: 8 more than multiprocessors
    shared = work(config._replace(split=4), 128 * 14, 1024, 256 * 10, 132, products=1)
    assert shared.sum_bytes == 3 * 4 * 128 * 256


@given(m=st.integers(1, 20000), depth=sizes, intermediate=sizes, fitted=st.sampled_from(FITTED))
def test_more_work_never_takes_less_time(m: int, depth: int, intermediate: int, fitted: tuple) -> None:
    config, cost, shared = fitted

    def estimate(m: int, depth: int, intermediate: int) -> float:
        return time_us(work(config, m, depth, intermediate, 132), cost, shared)

    here = estimate(m, depth, intermediate)
    assert here >= cost.start_us
    assert estimate(m + 1, depth, intermediate) >= here
    assert estimate(m, depth + 16, intermediate) >= here
    assert estimate(m, depth, intermediate + 16) >= here


@given(m=st.integers(17, 20000), depth=sizes, intermediate=sizes, training=st.booleans())
def test_a_shape_gets_the_tile_of_the_least_estimate(m: int, depth: int, intermediate: int, training: bool) -> None:
    chosen = choose(H100, torch.bfloat16, m, depth, intermediate, training=training)
    rules = configs.SM90.training if training else configs.SM90.forward
    rule = next(rule for rule in rules if m <= rule.tokens)
    costs = dict(zip(rule.configs, rule.costs, strict=True))
    times = {
        config: time_us(work(config, m, depth, intermediate, 132), costs[config], rule.shared)
        for config in rule.configs
        if config.sums_in(depth)
    }
    assert times[chosen] == min(times.values())


@pytest.mark.parametrize("config", [SPECIALISED, PORTABLE])
def test_the_longest_of_products_waiting_and_memory_decides(config: Config) -> None:
    done = work(config, 512, 4096, 4096, 132)
    slow = done._replace(moved_bytes=1e12)
    assert time_us(slow, COST, FORWARD) == pytest.approx(1e12 / FORWARD.bytes_per_us, rel=0.01)


def test_each_tile_has_a_cost_of_its_own_where_any_has() -> None:
    for rules in configs.SM90:
        for rule in rules:
            assert len(rule.costs) in {0, len(rule.configs)}
            assert len(set(rule.configs)) == len(rule.configs)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_more_tokens_are_streamed_only_where_that_was_timed(capability: tuple[int, int], dtype: torch.dtype) -> None:
    timed = capability == (9, 0) and dtype is not torch.float32
    assert few_tokens(capability, dtype) == (32 if timed else 16)
