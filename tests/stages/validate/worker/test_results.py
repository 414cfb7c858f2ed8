"""What a target returned: only a plain tensor with memory of its own is taken, and bits are compared as bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mlpfusion.stages.validate.worker.results import NoTensorError, named, plain, same_bits


class Lazy(Tensor):
    """A subclass, which may compute when it is read."""


def too_small() -> Tensor:
    """A tensor whose storage was taken from under it."""
    tensor = torch.ones(4, 4)
    tensor.untyped_storage().resize_(16)
    return tensor


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(3),
        nn.Parameter(torch.ones(3)),
        torch.ones(()),
        torch.ones(0, 5),
        torch.ones(4, 6)[1:, ::2].t(),
        torch.ones(1).expand(3, 7),
    ],
)
def test_a_dense_tensor_is_taken_as_it_is(value: Tensor) -> None:
    assert plain(value) is value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "a NoneType where a tensor"),
        ((torch.ones(3), None), "a tuple where a tensor"),
        (torch.ones(3).as_subclass(Lazy), "a Lazy, no plain torch.Tensor"),
        (torch.ones(3, device="meta"), "on the meta device"),
        (torch.eye(3).to_sparse(), "of layout torch.sparse_coo"),
        (too_small(), "memory is smaller than its values"),
    ],
)
def test_anything_else_is_named(value: Any, words: str) -> None:
    with pytest.raises(NoTensorError, match=words):
        plain(value)


def test_gradients_have_the_names_of_their_operands_and_missing_ones_none() -> None:
    first, third = torch.ones(2), torch.zeros(2)
    assert named(("x", "wg", "wu"), (first, None, third)) == {"d:x": first, "d:wu": third}
    assert list(named(("x",), (first,), "e")) == ["e:x"]
    with pytest.raises(NoTensorError):
        named(("x",), (first.as_subclass(Lazy),))
    with pytest.raises(ValueError, match="zip"):
        named(("x", "wg"), (first,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int8])
def test_equal_bits_are_the_same_whatever_the_strides(dtype: torch.dtype) -> None:
    tensor = torch.arange(6).view(2, 3).to(dtype)
    assert same_bits(tensor, tensor.t().contiguous().t())
    other = tensor.clone()
    other[1, 2] = 7
    assert not same_bits(tensor, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_bits_decide_and_not_the_value(dtype: torch.dtype) -> None:
    nan, zero = torch.tensor([float("nan")], dtype=dtype), torch.zeros(1, dtype=dtype)
    assert same_bits(nan, nan.clone())
    assert not same_bits(zero, -zero)


@pytest.mark.parametrize("other", [torch.ones(3, 2), torch.ones(2, 3, dtype=torch.float64), torch.ones(6)])
def test_another_shape_or_dtype_is_not_the_same(other: Tensor) -> None:
    assert not same_bits(torch.ones(2, 3), other)
