"""The fp64 activations against 30 digits, at every gate value that bfloat16 has and at float32's largest."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import mpmath
import pytest
import torch

from mlpfusion import reference
from mlpfusion.spec import ACTIVATIONS
from mlpfusion.stages.validate.judge import bounds

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.spec import Activation

pytestmark = pytest.mark.values

FLT_MAX = torch.finfo(torch.float32).max
DIGITS = mpmath.mp.clone()
DIGITS.dps = 30


ROOT = DIGITS.sqrt(2 / DIGITS.pi)
CUBIC = DIGITS.mpf("0.044715")


def by_digits(g: float, activation: Activation) -> float:
    """act(g)."""
    mp, x = DIGITS, DIGITS.mpf(g)
    if activation == "relu":
        return max(g, 0.0)
    if activation == "gelu":
        return float(x * mp.erfc(-x / mp.sqrt(2)) / 2)
    return float(x / (1 + mp.exp(-x if activation == "silu" else -2 * ROOT * (x + CUBIC * x**3))))


def slope_by_digits(g: float, activation: Activation) -> float:
    """Its derivative."""
    mp, x = DIGITS, DIGITS.mpf(g)
    if activation == "relu":
        return float(g > 0)
    if activation == "gelu":
        return float(mp.erfc(-x / mp.sqrt(2)) / 2 + x * mp.npdf(x))
    z, inner = (x, 1) if activation == "silu" else (2 * ROOT * (x + CUBIC * x**3), 2 * ROOT * (1 + 3 * CUBIC * x**2))
    share = 1 / (1 + mp.exp(-z))
    return float(share + x * share / (1 + mp.exp(z)) * inner)


@functools.cache
def gates() -> Tensor:
    """Every finite bfloat16 value and ±FLT_MAX, fp64."""
    largest = torch.tensor([FLT_MAX, -FLT_MAX], dtype=torch.float64)
    return torch.cat((bounds.every_value("bfloat16").double(), largest))


@pytest.mark.full  # mpmath takes them one by one; `make test-isa` runs it as well
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_gate_value_is_right_to_twelve_digits(activation: Activation) -> None:
    g = gates()
    right = torch.tensor([by_digits(value, activation) for value in g.tolist()], dtype=torch.float64)
    torch.testing.assert_close(reference.activate(g, activation), right, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_seventh_derivative_is_right_to_eleven_digits(activation: Activation) -> None:
    kept = gates().flip(0)[::7]
    g = kept[kept != 0].requires_grad_()  # where that of ReLU may be anything from 0 to 1
    (slope,) = torch.autograd.grad(reference.activate(g, activation).sum(), g)
    right = torch.tensor([slope_by_digits(value, activation) for value in g.tolist()], dtype=torch.float64)
    # A derivative crosses zero where it is a difference of two parts of size 0.1.
    torch.testing.assert_close(slope, right, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_second_derivative_is_finite_everywhere(activation: Activation) -> None:
    g = gates().clone().requires_grad_()
    (slope,) = torch.autograd.grad(reference.activate(g, activation).sum(), g, create_graph=True)
    if activation != "relu":  # whose slope is a constant
        (again,) = torch.autograd.grad(slope.sum(), g)
        assert again.isfinite().all()
    assert slope.isfinite().all()


def test_a_reference_in_another_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match=r"in torch\.float64, not in torch\.float32"):
        reference.activate(torch.ones(2), "gelu")
