"""Watched memory: what a target wrote beside its results and operands, and what it read there."""

from __future__ import annotations

import math
import sys
import types
from typing import TYPE_CHECKING

import pytest
import torch

from mlpfusion.stages.validate.channel import PATTERNS
from mlpfusion.stages.validate.layouts import LAYOUTS
from mlpfusion.stages.validate.worker import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor


@pytest.mark.parametrize("pattern", ["nan", "odd"])
def test_watched_memory_is_filled_and_its_margin_counted(pattern: str) -> None:
    value = PATTERNS[pattern]
    with guard.watch(pattern) as watched:
        made = [torch.empty(3, 5), torch.empty_like(torch.ones(4)), torch.ones(2).new_empty(7)]
        integers = torch.empty(3, dtype=torch.int64)
        for tensor in made:
            assert (tensor.isnan() if math.isnan(value) else tensor == value).all()
            assert tensor.is_contiguous()
        assert integers.shape == (3,)
        assert watched.overwritten() == {"before": 0, "behind": 0, "farthest": 0}
        first = made[0].storage_offset()
        made[0].as_strided((2,), (1,), first + 15).fill_(1.0)  # as a kernel does whose mask lets too much through
        assert watched.overwritten() == {"before": 0, "behind": 2, "farthest": 2}
        made[0].as_strided((3,), (1,), first - 3).fill_(1.0)  # and one whose index begins too early
        assert watched.overwritten() == {"before": 3, "behind": 2, "farthest": 2}
    assert torch.empty(3).untyped_storage().nbytes() == 12  # nothing is watched any more


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2, 3),
        lambda: torch.zeros_like(torch.ones(3, 2).t()),
        lambda: torch.ones(1).new_zeros(6),
    ],
)
@pytest.mark.parametrize("pattern", ["nan", "odd"])
def test_memory_of_zeros_has_a_margin_and_keeps_its_zeros(make: Callable[[], Tensor], pattern: str) -> None:
    with guard.watch(pattern) as watched:
        made = make()
        assert (made == 0).all()
        assert watched.overwritten() == {"before": 0, "behind": 0, "farthest": 0}
        made.as_strided((1,), (1,), made.storage_offset() + 6).fill_(1.0)
        assert watched.overwritten() == {"before": 0, "behind": 1, "farthest": 1}
    assert made.stride() == make().stride()


@pytest.mark.parametrize("is_there", [False, True])
def test_memory_of_pytorchs_cuda_graphs_is_left_to_them(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    """They refuse to record while anything else holds memory of their pool. What only has their name is watched."""
    monkeypatch.setitem(sys.modules, guard.GRAPHS_OF_PYTORCH, types.ModuleType(guard.GRAPHS_OF_PYTORCH))
    scope = vars(sys.modules[guard.GRAPHS_OF_PYTORCH]) if is_there else {"__name__": guard.GRAPHS_OF_PYTORCH}
    exec("def record(inner): return inner()", scope)
    with guard.watch("nan") as watched:
        made = scope["record"](lambda: torch.empty(3))
    assert len(watched.seen) == (not is_there)
    assert (made.untyped_storage().nbytes() == 12) == is_there


def test_a_watched_tensor_keeps_strides_and_gradients() -> None:
    with guard.watch("nan"):
        turned = torch.empty_like(torch.ones(3, 4).t())
        wants = torch.empty(3, requires_grad=True)
    assert turned.stride() == (1, 4)
    assert wants.requires_grad
    assert wants.is_leaf


@pytest.mark.parametrize("around", [("nan", "nan"), ("nan", "zero"), ("zero", "odd")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_placed_operand_has_patterns_around_it(around: tuple[str, str], dtype: torch.dtype) -> None:
    placed = guard.place(torch.arange(6.0).view(2, 3).to(dtype), torch.device("cpu"), around)
    assert torch.equal(placed, torch.arange(6.0).view(2, 3).to(dtype))
    first = placed.storage_offset()
    parts = [placed.as_strided((4,), (1,), first + place) for place in (-4, 6)]
    for name, part in zip(around, parts, strict=True):
        pattern = torch.full_like(part, PATTERNS[name])
        assert torch.equal(part.nan_to_num(7.0), pattern.nan_to_num(7.0))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_operand_that_is_placed_while_allocations_are_watched_has_its_values(pattern: str) -> None:
    operand = torch.arange(6.0).view(2, 3)
    with guard.watch(pattern):
        placed = guard.place(operand, torch.device("cpu"), ("odd", "large"))
    assert torch.equal(placed, operand)
    memory = torch.empty(0).set_(placed.untyped_storage())
    start = placed.storage_offset()
    assert (memory[start - 1], memory[start + 6]) == (PATTERNS["odd"], PATTERNS["large"])


@pytest.mark.parametrize("place", [-1, 6, 1])
@pytest.mark.parametrize("layout", ["dense", "transposed", "expanded", "half of a packed tensor"])
def test_a_write_beside_a_tensor_is_noticed_and_one_into_it_is_not(place: int, layout: str) -> None:
    placed = guard.place(torch.arange(6.0).view(2, 3), torch.device("cpu"))
    tensor = LAYOUTS[layout](placed) if layout != "dense" else placed
    around = guard.Surroundings((tensor, placed))
    assert around.changed() == []
    if layout != "dense" and place != 1:
        return
    tensor.as_strided((1,), (1,), tensor.storage_offset() + place).fill_(1000.0)
    assert around.changed() == ([] if place == 1 else [0, 1])


def test_a_write_between_the_rows_of_a_part_is_noticed() -> None:
    half = LAYOUTS["half of a packed tensor"](torch.arange(6.0).view(2, 3))
    around = guard.Surroundings((half,))
    half.as_strided((1,), (1,), half.storage_offset() + 3).zero_()  # the next row's left half
    assert around.changed() == [0]


@pytest.fixture(autouse=True)
def _own_allocators() -> Iterator[None]:
    yield
    guard.restore()
