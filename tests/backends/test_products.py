"""The gated MLP on tensors by PyTorch's products: its values to the bit, its written backward against autograd's."""

from __future__ import annotations

import pytest
import torch
from mlpfusion_kernels import Weights
from mlpfusion_kernels.gradients import Wanted
from torch.nn import functional

from mlpfusion.backends import products
from mlpfusion.backends.eager import FUNCTIONS
from mlpfusion.spec import ACTIVATIONS


def case(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 5, 8), (12, 8), (12, 8), (8, 12), (12,), (12,), (8,)]
    x, *weights = (torch.randn(each, generator=generator, dtype=torch.float64).to(dtype) for each in shapes)
    return x, Weights(*weights)


def three_layers(x, weights, activation):
    gate = functional.linear(x, weights.gate, weights.gate_bias)
    up = functional.linear(x, weights.up, weights.up_bias)
    return functional.linear(FUNCTIONS[activation](gate) * up, weights.down, weights.down_bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_are_those_of_three_layers_to_the_bit(activation, dtype):
    x, weights = case(dtype)
    y, gate, up = products.forward(x, weights, activation, True)
    assert torch.equal(y, three_layers(x.flatten(0, 1), weights, activation).view(x.shape))
    assert gate.shape == up.shape == (10, 12)
    assert products.forward(x, weights, activation, False)[1:] == (None, None)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_are_autograds(activation, kept):
    x, weights = case()
    leaves = [each.clone().requires_grad_() for each in (x, *weights)]
    dy = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    right = torch.autograd.grad(three_layers(leaves[0], Weights(*leaves[1:]), activation), leaves, dy)
    _, gate, up = products.forward(x, weights, activation, kept)
    found = products.backward(dy, x, gate, up, weights, activation, Wanted(*[True] * 7))
    for mine, expected in zip(found, right, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("place", range(7))
def test_only_what_is_wanted_is_computed(place):
    x, weights = case()
    _, gate, up = products.forward(x, weights, "silu", True)
    found = products.backward(x, x, gate, up, weights, "silu", Wanted(*(i == place for i in range(7))))
    assert [i for i, each in enumerate(found) if each is not None] == [place]
