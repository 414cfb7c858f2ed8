"""The fp64 activations against 30 digits, at every gate value that bfloat16 has and at float32's largest."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import mpmath
import pytest
import torch

from mlpfusion import reference
from mlpfusion.spec import ACTIVATIONS
from mlpfusion.stages.validate.judge import bounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.spec import Activation

pytestmark = pytest.mark.values

FLT_MAX = torch.finfo(torch.float32).max
DIGITS = mpmath.mp.clone()
DIGITS.dps = 30


ROOT = DIGITS.sqrt(2 / DIGITS.pi)
CUBIC = DIGITS.mpf("0.044715")


class Exact(NamedTuple):
    """An activation and its derivative, in 30 digits."""

    value: Callable[[Any], Any]
    slope: Callable[[Any], Any]


def sigmoid(a: Any, b: Any = 0) -> Exact:
    """g·sigmoid(a·g + b·g³)."""
    mp = DIGITS

    def share(x: Any) -> Any:
        return 1 / (1 + mp.exp(-(a * x + b * x**3)))

    return Exact(
        lambda x: x * share(x),
        lambda x: share(x) + x * share(x) / (1 + mp.exp(a * x + b * x**3)) * (a + 3 * b * x**2),
    )


EXACT: dict[Activation, Exact] = {
    "gelu_tanh": sigmoid(2 * ROOT, 2 * ROOT * CUBIC),
    "gelu": Exact(
        lambda x: x * DIGITS.erfc(-x / DIGITS.sqrt(2)) / 2,
        lambda x: DIGITS.erfc(-x / DIGITS.sqrt(2)) / 2 + x * DIGITS.npdf(x),
    ),
    "silu": sigmoid(1),
    "quick_gelu": sigmoid(DIGITS.mpf("1.702")),
    "relu": Exact(lambda x: max(x, 0), lambda x: x > 0),
    "relu2": Exact(lambda x: max(x, 0) ** 2, lambda x: 2 * max(x, 0)),
}


@functools.cache
def gates() -> Tensor:
    """Every finite bfloat16 value and ±FLT_MAX, fp64."""
    largest = torch.tensor([FLT_MAX, -FLT_MAX], dtype=torch.float64)
    return torch.cat((bounds.every_value("bfloat16").double(), largest))


@pytest.mark.full  # mpmath takes them one by one; `make test-isa` runs it as well
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_gate_value_is_right_to_twelve_digits(activation: Activation) -> None:
    g = gates()
    right = torch.tensor(
        [float(EXACT[activation].value(DIGITS.mpf(value))) for value in g.tolist()], dtype=torch.float64
    )
    torch.testing.assert_close(reference.activate(g, activation), right, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_seventh_derivative_is_right_to_eleven_digits(activation: Activation) -> None:
    kept = gates().flip(0)[::7]
    g = kept[kept != 0].requires_grad_()  # where that of ReLU may be anything from 0 to 1
    (slope,) = torch.autograd.grad(reference.activate(g, activation).sum(), g)
    right = torch.tensor(
        [float(EXACT[activation].slope(DIGITS.mpf(value))) for value in g.tolist()], dtype=torch.float64
    )
    # A derivative crosses zero where it is a difference of two parts of size 0.1.
    torch.testing.assert_close(slope, right, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_second_derivative_is_finite_everywhere(activation: Activation) -> None:
    g = gates().clone().requires_grad_()
    (slope,) = torch.autograd.grad(reference.activate(g, activation).sum(), g, create_graph=True)
    if slope.requires_grad:  # that of ReLU is a constant
        (again,) = torch.autograd.grad(slope.sum(), g)
        assert again.isfinite().all()
    assert slope.isfinite().all()


def test_a_reference_in_another_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match=r"in torch\.float64, not in torch\.float32"):
        reference.activate(torch.ones(2), "gelu")
