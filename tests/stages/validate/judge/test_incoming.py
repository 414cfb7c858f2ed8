"""Gradients of any size: what they are like, and that they say which of them a result loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from mlpfusion.spec import DTYPES
from mlpfusion.stages.validate.judge import bounds, incoming

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype

SHAPE = (16, 256)


def operands(dtype: Dtype, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    gate, up = (torch.randn(SHAPE, generator=generator).to(getattr(torch, dtype)) for _ in range(2))
    return gate, bounds.spread(up, generator), generator


@pytest.mark.parametrize("dtype", DTYPES)
def test_dy_spans_the_dtype_and_no_right_gradient_of_it_overflows(dtype: Dtype) -> None:
    gate, up, generator = operands(dtype, 0)
    dy = incoming.wide(up, dtype, generator)
    assert dy.dtype is up.dtype
    size = dy.double().abs()
    assert float(size.max()) > 4096
    assert float(size.min()) < 2**-20
    assert bool((dy.double() * up.double()).to(dy.dtype).isfinite().all())
    point = bounds.Point(gate, up, dy)
    exact = bounds.gradients(point, "gelu_tanh")
    rounded = [each.to(dy.dtype) for each in exact]
    assert float(bounds.gate_scores(rounded[0], point, "gelu_tanh", dtype).max()) <= 0.5 + 2**-10
    assert float(bounds.up_scores(rounded[1], point, "gelu_tanh", dtype).max()) <= 0.5 + 2**-10


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_strange_value_comes_and_its_loss_is_seen(dtype: Dtype) -> None:
    gate, up, generator = operands(dtype, 1)
    dy = incoming.strange(incoming.wide(up, dtype, generator), generator)
    assert {str(float(each)) for each in dy.reshape(-1)} >= {"inf", "-inf", "nan", "0.0", "-0.0"}
    right = bounds.gradients(bounds.Point(gate, up, dy), "gelu_tanh")[0]
    assert not bool(incoming.lost(right, right, dy).any())
    hidden = right.nan_to_num(0.0, 0.0, 0.0)
    assert torch.equal(incoming.lost(hidden, right, dy), ~dy.isfinite() & ~right.isfinite())


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_of_an_mlps_dy_has_one_scale_that_its_dtype_holds(dtype: Dtype) -> None:
    given = {"x": torch.ones(2), "dy": torch.ones(4, 8, dtype=getattr(torch, dtype))}
    large, tiny = (incoming.scaled(given, dtype, large=large) for large in (True, False))
    wanted = (512.0, 2.0**-6) if dtype == "float16" else (65536.0, 2.0**-12)
    assert tuple(float(each["dy"].unique()) for each in (large, tiny)) == wanted
    assert all(each["x"] is given["x"] and each["dy"].dtype is given["dy"].dtype for each in (large, tiny))
