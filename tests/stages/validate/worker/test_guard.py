"""Watched memory: what a target wrote beside its results, and what it read behind its operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

from mlpfusion.stages.validate.channel import PATTERNS
from mlpfusion.stages.validate.worker import guard

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("pattern", ["nan", "odd"])
def test_watched_memory_is_filled_and_its_margin_counted(pattern: str) -> None:
    value = PATTERNS[pattern]
    with guard.watch(pattern) as watched:
        made = [torch.empty(3, 5), torch.empty_like(torch.ones(4)), torch.ones(2).new_empty(7)]
        integers = torch.empty(3, dtype=torch.int64)
        for tensor in made:
            assert (tensor.isnan() if math.isnan(value) else tensor == value).all()
            assert tensor.is_contiguous()
            assert tensor.storage_offset() == 0
        assert integers.shape == (3,)
        assert watched.overwritten() == {"behind": 0, "farthest": 0}
        first = made[0]
        torch.as_strided(first, (2,), (1,), 15).fill_(1.0)  # as a kernel does whose mask lets too much through
        assert watched.overwritten() == {"behind": 2, "farthest": 2}
    assert torch.empty(3).untyped_storage().nbytes() == 12  # nothing is watched any more


def test_a_watched_tensor_keeps_strides_and_gradients() -> None:
    with guard.watch("nan"):
        turned = torch.empty_like(torch.ones(3, 4).t())
        wants = torch.empty(3, requires_grad=True)
    assert turned.stride() == (1, 4)
    assert wants.requires_grad
    assert wants.is_leaf


def test_a_placed_operand_has_nan_behind_it() -> None:
    placed = guard.place(torch.arange(6.0).view(2, 3), torch.device("cpu"))
    assert torch.equal(placed, torch.arange(6.0).view(2, 3))
    assert torch.as_strided(placed, (4,), (1,), 6).isnan().all()


@pytest.fixture(autouse=True)
def _own_allocators() -> Iterator[None]:
    yield
    guard.restore()
