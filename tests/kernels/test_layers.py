"""Layers for `kernelize`: forwards that use the projections of the module that they replace."""

from __future__ import annotations

import pytest
import torch
from mlpfusion_kernels import layers
from mlpfusion_kernels.activations import TABLE
from torch import nn

from mlpfusion.backends.eager import FUNCTIONS


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(16, 32), nn.Linear(16, 32)
        self.down_proj = nn.Linear(32, 16)


def test_there_is_one_for_each_activation_under_its_own_name() -> None:
    assert list(layers.LAYERS) == list(TABLE)
    for name, layer in layers.LAYERS.items():
        assert getattr(layers, layer.__name__) is layer
        assert layer.__name__ == f"Mlpfusion{TABLE[name].layer}MLP"
        assert (layer.has_backward, layer.can_torch_compile) == (True, True)
    assert sorted(layers.__all__) == sorted(layer.__name__ for layer in layers.LAYERS.values())


@pytest.mark.parametrize("activation", layers.LAYERS)
def test_a_forward_is_that_of_the_module_and_so_are_its_gradients(activation: str) -> None:
    torch.manual_seed(0)
    mlp, x = MLP(), torch.randn(3, 5, 16, requires_grad=True)
    y = layers.LAYERS[activation].forward(mlp, x)
    right = mlp.down_proj(FUNCTIONS[activation](mlp.gate_proj(x)) * mlp.up_proj(x))
    torch.testing.assert_close(y, right, rtol=1e-5, atol=1e-6)
    parameters = [x, *mlp.parameters()]
    found, expected = (torch.autograd.grad(out.square().sum(), parameters) for out in (y, right))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
