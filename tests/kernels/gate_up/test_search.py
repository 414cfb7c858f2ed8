"""Candidates of a search: all can run, the shipped one is first, and the best of both kernels are put together."""

from __future__ import annotations

import pytest
import torch
from mlpfusion_kernels.gate_up import search, tuned
from mlpfusion_kernels.gate_up.choice import choose, choose_backward
from mlpfusion_kernels.gate_up.decode import StreamTile
from mlpfusion_kernels.gate_up.limits import DIRECTIONS, decode_refusal, refusal
from support.tunings_made import (
    CARDS,
    OTHER,
    SHAPE,
    STREAM,
)


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_candidates_can_run_and_the_shipped_one_is_first(card: str, direction: str, dtype: torch.dtype) -> None:
    here = CARDS[card]
    for m in (1, 16) if direction == "decode" else (17, 64, 100, 256, 8192):
        found = search.candidates(here, dtype, direction, m, *SHAPE[1:])
        assert len(found) == len(set(found))
        assert 10 <= len(found) <= 130
        if direction == "decode":
            assert found[0] == tuned.shipped_decode(here, dtype, m, *SHAPE[1:])
            assert all(decode_refusal(each, here, dtype, m) is None for each in found)
            continue
        if direction == "backward":
            assert found[0] == choose_backward(here, dtype, m, *SHAPE[1:])
        else:
            assert found[0] == choose(here, dtype, m, *SHAPE[1:], training=direction == "training")
        assert [refusal(each, here, dtype, direction, 768) for each in found] == [None] * len(found)


def test_the_best_tiles_of_both_kernels_are_put_together() -> None:
    first = STREAM._replace(gate_up=StreamTile(64, 128, 4, 4))
    gate_up, down = STREAM._replace(gate_up=StreamTile(128, 64, 4, 4)), first._replace(down=StreamTile(16, 128, 6, 4))
    assert search.crossed([gate_up, down, first]) == gate_up._replace(down=down.down)
    assert search.crossed([OTHER]) is None
