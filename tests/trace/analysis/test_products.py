"""The shape of a matrix product by its operator's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.analysis.products import Shape, shape_of
from mlpfusion.trace.read.kineto import Event

if TYPE_CHECKING:
    from collections.abc import Callable

sizes = st.integers(1, 9)


def operator(name: str, *dims: tuple[int, ...] | list[int]) -> Event:
    return Event(name, "cpu_op", 0, 1, 1, 1, dims=tuple(map(tuple, dims)))


@given(rows=st.lists(sizes, min_size=1, max_size=3), k=sizes, n=sizes)
def test_every_form_of_a_product_has_the_shape_that_pytorch_computes(rows: list[int], k: int, n: int) -> None:
    x, weight, bias = torch.zeros(*rows, k), torch.zeros(n, k), torch.zeros(n)
    flat = x.reshape(-1, k)
    calls: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
        "aten::linear": (torch.nn.functional.linear, (x, weight, bias)),
        "aten::matmul": (torch.matmul, (x, weight.T)),
        "aten::mm": (torch.mm, (flat, weight.T)),
        "aten::addmm": (torch.addmm, (bias, flat, weight.T)),
    }
    for name, (call, operands) in calls.items():
        found = shape_of(operator(name, *(each.shape for each in operands)))
        assert found == Shape(flat.shape[0], k, n), name
        assert call(*operands).numel() == found.m * found.n


@pytest.mark.parametrize(
    "event",
    [
        operator("aten::mm", [2, 3]),  # the second factor was not recorded
        operator("aten::mm", [2, 3], []),
        operator("aten::mm", [3], [3, 4]),  # no matrix
        operator("aten::mm", [2, 3], [4, 5]),  # they do not fit
        operator("aten::matmul", [2, 5, 3], [2, 3, 4]),  # a batch of products
        operator("aten::gelu", [2, 3], [3, 4]),
        Event("aten::mm", "cpu_op", 0, 1, 1, 1),
    ],
)
def test_what_the_trace_does_not_say_is_none(event: Event) -> None:
    assert shape_of(event) is None
