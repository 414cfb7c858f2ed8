"""What a backend has to keep to: eager's values and gradients, for any number of tokens."""

from __future__ import annotations

import pytest
import torch
from mlpfusion_chunked import Chunked

from mlpfusion import GatedMLP, MLPSpec


@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu", "silu", "relu"])
@pytest.mark.parametrize("shape", [(16,), (0, 16), (1, 16), (2, 3, 16), (5, 500, 16)])
def test_it_computes_what_eager_does(shape, activation):
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, activation=activation, dtype="float32"))
    x = torch.randn(*shape)
    expected = mlp(x)
    gradients = torch.autograd.grad(expected.sum(), tuple(mlp.parameters()))
    y = mlp.set_backend("chunked")(x)
    torch.testing.assert_close(y, expected)
    for mine, theirs in zip(torch.autograd.grad(y.sum(), tuple(mlp.parameters())), gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_no_slice_is_larger_than_promised():
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32"))
    seen = []
    mlp.gate_proj.register_forward_hook(lambda module, given, found: seen.append(found.shape[0]))
    mlp.set_backend("chunked")(torch.randn(2500, 16))
    assert seen == [1024, 1024, 452]
    assert max(seen) == Chunked.rows
