"""The bounds: right forms stay inside, each wrong one is outside where it can be seen, and is named."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings

from mlpfusion.backends.eager import FUNCTIONS as EAGER
from mlpfusion.reference import activate
from mlpfusion.spec import ACTIVATIONS, DTYPES
from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.checks import values

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.spec import Activation, Dtype

    Form = Callable[[Tensor, Tensor], Tensor]

pytestmark = pytest.mark.values


def operands(dtype: Dtype, scale: float, seed: int, n: int = 2048) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    gate, up, dy = (torch.randn(n, generator=generator) for _ in range(3))
    narrow = getattr(torch, dtype)
    return (gate * scale).to(narrow), up.to(narrow), dy.to(narrow)


# PyTorch has no operator of their own for these: each of several rounds to 16 bits.
COMPOSED = {"quick_gelu"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@settings(max_examples=rings.examples(10))
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([0.01, 1.0, 10.0]))
def test_eager_is_inside_every_bound(dtype: Dtype, activation: Activation, seed: int, scale: float) -> None:
    gate, up, dy = operands(dtype, scale, seed)
    g, u = gate.requires_grad_(), up.requires_grad_()
    inner = torch.float32 if activation in COMPOSED else g.dtype
    y = (EAGER[activation](g.to(inner)) * u.to(inner)).to(g.dtype)
    dgate, dup = torch.autograd.grad(y, (g, u), dy)
    at = bounds.Point(gate.detach(), up.detach(), dy)
    assert bounds.forward_scores(y.detach(), at.gate, at.up, activation, dtype).max() <= bounds.LIMIT
    assert bounds.gate_scores(dgate, at, activation, dtype).max() <= bounds.LIMIT
    assert bounds.up_scores(dup, at, activation, dtype).max() <= bounds.LIMIT


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("activation", sorted(COMPOSED))
def test_what_several_operators_round_is_beyond_the_bound(dtype: Dtype, activation: Activation) -> None:
    """No bound is widened for it: a target that computes in float32 inside stays within."""
    gate = bounds.every_value(dtype)
    assert bounds.beyond(EAGER[activation](gate), gate, torch.ones_like(gate), activation, dtype).any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("activation", sorted({*ACTIVATIONS} - COMPOSED))
def test_a_subnormal_product_may_be_rounded_before_the_slope_multiplies_it(
    dtype: Dtype, activation: Activation
) -> None:
    _, up, dy = operands(dtype, 1.0, 0)
    smallest = bounds.TINY[dtype] ** 0.5  # of each factor: their product is a few of the smallest steps
    up, dy = up * smallest * 3, dy * smallest * 3
    gate = torch.linspace(-60, 60, up.numel()).to(up.dtype)
    at = bounds.Point(gate, up, dy)
    # Not by PyTorch's operators: on CPUs with AVX512_BF16 its gelu of bfloat16 flushes subnormals to zero (torch 2.13).
    slope, _ = bounds.gradients(bounds.Point(gate, torch.ones_like(up), torch.ones_like(dy)), activation)
    dgate = ((up.double() * dy.double()).to(up.dtype).double() * slope).to(up.dtype)
    assert bounds.gate_scores(dgate, at, activation, dtype).max() <= bounds.LIMIT
    assert bounds.gate_scores(dgate * 2 + 4 * bounds.TINY[dtype], at, activation, dtype).max() > bounds.LIMIT


def test_nan_and_infinity_have_no_finite_score() -> None:
    gate, up, _ = operands("float32", 1.0, 0, n=4)
    y = torch.tensor([math.nan, math.inf, -math.inf, 0.0])
    scores = bounds.forward_scores(y, gate, up, "gelu_tanh", "float32")
    assert scores[:3].isinf().all()
    assert scores[3].isfinite()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_gate_value_of_eager_is_inside(dtype: Dtype, activation: Activation) -> None:
    gate = bounds.every_value(dtype)
    for factor in (1.0, 1.0 + bounds.EPS[dtype]):
        up = torch.full_like(gate, factor)
        inner = gate.float()
        once = (EAGER[activation](inner) * up.float()).to(gate.dtype)
        twice = EAGER[activation](inner).to(gate.dtype) * up
        for y in (once, twice):
            beyond = functools.partial(bounds.beyond, gate=gate, up=up, activation=activation, dtype=dtype)
            assert not excuses.part(beyond, y, functools.partial(excuses.pytorch, gate, up, activation)).wrong.any()


def test_every_value_is_every_finite_value_once() -> None:
    for dtype, count in (("bfloat16", 2**16 - 2**8), ("float16", 2**16 - 2**11)):
        values = bounds.every_value(dtype)  # type: ignore[arg-type]
        assert values.numel() == count
        assert values.isfinite().all()
        assert len(set(values.view(torch.int16).tolist())) == count
        assert (values.double().diff() >= 0).all()


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
ODD = st.sampled_from([math.nan, math.inf, -math.inf])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@settings(max_examples=rings.examples(10))
@given(data=st.data())
def test_nan_and_infinity_are_near_no_finite_value(dtype: Dtype, activation: Activation, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    gate = torch.tensor(data.draw(st.lists(st.floats(-60, 60, width=16), min_size=count, max_size=count)))
    gate = gate.to(getattr(torch, dtype))
    up = torch.ones_like(gate)
    y = bounds.product(gate, up, activation).to(gate.dtype)
    assert bounds.is_near(y, gate, up, activation, dtype)
    y[data.draw(st.integers(0, count - 1))] = data.draw(ODD)
    assert not bounds.is_near(y, gate, up, activation, dtype)


@settings(max_examples=rings.examples(200))
@given(
    values=st.lists(st.one_of(FINITE, ODD), min_size=1, max_size=8),
    other=st.one_of(FINITE, ODD),
    at=st.integers(0, 7),
)
def test_only_the_same_is_close_to_nan_and_infinity(values: list[float], other: float, at: int) -> None:
    right = torch.tensor(values)
    assert bounds.is_close(right, right.clone(), "float32")
    found = right.clone()
    found[at % len(values)] = other
    was, now = (float(each[at % len(values)]) for each in (right, found))
    if not (math.isfinite(was) and math.isfinite(now)):
        same = was == now or (math.isnan(was) and math.isnan(now))
        assert bounds.is_close(found, right, "float32") == same
    elif abs(now - was) > 1e-3 * max(abs(value) for value in values if math.isfinite(value)):
        assert not bounds.is_close(found, right, "float32")


def truncated(value: torch.Tensor) -> torch.Tensor:
    return ((value.contiguous().view(torch.int32) >> 13) << 13).view(torch.float32).half()


def down(value: torch.Tensor) -> torch.Tensor:
    cut = truncated(value)
    return torch.where(cut.float() > value, (cut.view(torch.int16) + 1).view(torch.float16), cut)


STORES = {
    "nearest": (torch.Tensor.half, (0, 0), ""),
    "truncates": (truncated, (-0.5, 0.5), "it truncates"),
    "down": (down, (-0.5, -0.5), "it rounds down"),
    "up": (lambda value: -down(-value), (0.5, 0.5), "it rounds up"),
    "one side": (lambda value: torch.where(value > 0, down(value), value.half()), (-0.5, 0), "above zero to one side"),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("store", STORES)
def test_the_biases_of_stores(activation: Activation, store: str) -> None:
    """Zeros, which are half of what ReLU gives, say nothing of a store."""
    stored, bias, words = STORES[store]
    generator = torch.Generator().manual_seed(0)
    gate, up, dy = (torch.randn(20_000, generator=generator).half() for _ in range(3))
    y = bounds.product(gate, up, activation).float()
    at = bounds.Point(gate, up, dy)
    dgate, dup = (each.float() for each in bounds.gradients(at, activation))
    found = bounds.bias_in_ulp(stored(y), gate, up, activation, "float16")
    assert found == pytest.approx(bias, abs=0.03)
    assert found.worst in found
    assert words in values.how(found)
    whole = torch.randn(20_000, generator=generator)  # of a whole MLP, say
    assert bounds.bias(stored(whole), whole.double(), "float16") == pytest.approx(bias, abs=0.03)
    one = bounds.gradient_biases_in_ulp(stored(dgate), dup.half(), at, activation, "float16")
    assert one.gate == pytest.approx(bias, abs=0.03)
    assert one.up == pytest.approx((0, 0), abs=0.03)
    other = bounds.gradient_biases_in_ulp(dgate.half(), stored(dup), at, activation, "float16")
    assert other.up == pytest.approx(bias, abs=0.03)


def test_a_store_of_which_nothing_can_be_judged_has_no_bias() -> None:
    zeros = torch.zeros(8, dtype=torch.float16)
    assert math.isnan(bounds.bias_in_ulp(zeros, zeros, zeros, "relu", "float16").worst)


def test_distances_are_in_steps_of_the_dtype_and_nan_is_infinitely_far() -> None:
    gate = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.bfloat16)
    up = torch.ones_like(gate)
    right = bounds.product(gate, up, "relu")  # the gates themselves
    step = bounds.ulp(right, "bfloat16")
    y = right + torch.tensor([0.0, 0.5, -1.0, math.nan]) * step
    assert bounds.ulps_off(y, gate, up, "relu", "bfloat16").tolist() == [0.0, 0.5, 1.0, math.inf]
    beyond = torch.tensor([torch.finfo(torch.bfloat16).max], dtype=torch.bfloat16)
    assert bounds.ulps_off(beyond, beyond, 2 * torch.ones_like(beyond), "relu", "bfloat16").numel() == 0


@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3)])
def test_gradients_for_a_dy_are_to_the_bit_those_of_autograd(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    gate, up, dy = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    for special in (None, math.inf, -math.inf, math.nan, -0.0, 2.0**-1074):
        if special is not None and dy.numel():
            dy.view(-1)[0] = special
        leaves = tuple(each.clone().requires_grad_() for each in (gate, up))
        y = activate(leaves[0], "gelu_tanh") * leaves[1]
        right = torch.autograd.grad(y, leaves, dy, retain_graph=True)
        for mine, theirs in zip(bounds.grads_for(y, leaves, dy), right, strict=True):
            assert torch.equal(mine.view(torch.int64), theirs.view(torch.int64))
