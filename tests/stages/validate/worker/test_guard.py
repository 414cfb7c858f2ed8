"""Watched memory: what a target wrote beside its results and operands, and what it read there."""

from __future__ import annotations

import ctypes
import gc
import math
import sys
import types
from typing import TYPE_CHECKING

import pytest
import torch

from mlpfusion.stages.validate.channel import PATTERNS
from mlpfusion.stages.validate.layouts import LAYOUTS, in_one_buffer
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


def test_memory_of_a_transform_is_left_alone() -> None:
    def summed(x: Tensor) -> Tensor:
        return torch.zeros(3) + torch.empty_like(x).zero_() + torch.zeros_like(x) + x

    with guard.watch("nan"):
        _, back = torch.func.vjp(summed, torch.ones(3))
        assert back(torch.ones(3))[0].tolist() == [1.0] * 3
        assert torch.vmap(summed)(torch.ones(2, 3)).tolist() == [[1.0] * 3] * 2


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


def test_a_write_into_another_operand_of_one_buffer_is_not_beside_it_and_one_into_the_gap_is() -> None:
    first, second = in_one_buffer((torch.ones(2, 3), torch.ones(2, 3)), "in one buffer with gaps")
    around = guard.Surroundings((first, second))
    second.zero_()
    assert around.changed() == []
    first.as_strided((1,), (1,), 6).zero_()
    assert around.changed() == [0, 1]


@pytest.fixture(autouse=True)
def _own_allocators() -> Iterator[None]:
    yield
    guard.restore()


def _with_one_more(out: Tensor) -> Tensor:
    """By its address, as a kernel does: PyTorch holds that nothing is there."""
    ctypes.memset(out.data_ptr() + out.numel() * out.element_size(), 1, out.element_size())
    return out.clone()


BEHIND = {
    "copies": lambda x: _with_one_more(x.clone()),
    "sums": lambda x: _with_one_more(x + 1),
    "a part of one": lambda x: _with_one_more(x.repeat(2)[:0].new_tensor([1.0, 2.0]).exp()),
    "operators without a wrapper": lambda x: _with_one_more(torch.ops.aten.empty_like(x)),
}


@pytest.mark.parametrize("pattern", ["nan", "odd"])
@pytest.mark.parametrize("what", BEHIND)
def test_what_is_written_behind_what_an_operator_made_is_seen(pattern: str, what: str) -> None:
    with guard.watch(pattern, operators=True) as watched:
        BEHIND[what](torch.ones(4))
    assert watched.overwritten() == {"before": 0, "behind": 1, "farthest": 1}


OPERATORS = {
    "views": lambda x: x.view(2, 3).t()[1:].mul(2),
    "in place": lambda x: x.clone().mul_(3).add_(x),
    "two results": lambda x: torch.stack(x.max(dim=0) + x.view(3, 2).sort(0)[0].unbind(1)[0].max(dim=0)),
    "halves of one memory": lambda x: torch.cat([2 * each for each in torch.ops.aten.split_copy(x, 3)]),
    "not dense": lambda x: x.view(2, 3).t().clone() + x.expand(4, 6).sum(0)[:2],
    "another dtype": lambda x: x.to(torch.bfloat16).double().float() * (x > 1),
    "an allocation": lambda x: torch.empty_like(x).copy_(x) + torch.zeros(6) + x.new_zeros(6),
    "a slice of a sum": lambda x: (x + 1).as_strided((2, 2), (1, 1), 3) * 2,
    "a resized one": lambda x: torch.empty(0).resize_(6).copy_(x) * 2,
    "nothing": lambda x: x[:0].clone(),
    "a number": lambda x: x.sum() * x.detach()[0].item(),
}


def test_what_is_in_watched_memory_stays_there_when_nobody_watches_any_more() -> None:
    with guard.watch("nan", operators=True) as watched:
        x = torch.arange(6.0).exp()
    del watched
    gc.collect()
    spoiled = [bytearray(b"x" * 300_000) for _ in range(8)]
    assert torch.equal(x, torch.arange(6.0).exp())
    del spoiled


@pytest.mark.parametrize("what", OPERATORS)
def test_operators_compute_in_watched_memory_as_elsewhere_with_gradients_too(what: str) -> None:
    made = []
    for operators in (False, True):
        x = torch.arange(1.0, 7.0).requires_grad_()
        with guard.watch("nan", operators=operators) as watched:
            y = OPERATORS[what](x)
            (grad,) = torch.autograd.grad(y.sum(), (x,))
        made.append((y.detach().clone(), y.stride(), grad.clone()))
        assert watched.overwritten() == {"before": 0, "behind": 0, "farthest": 0}
    (first, strides, grad), (again, strides_again, grad_again) = made
    assert torch.equal(first, again)
    assert strides == strides_again
    assert torch.equal(grad, grad_again)
