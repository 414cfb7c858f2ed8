"""What a backend has to keep to: eager's values and gradients, for any number of tokens."""

from __future__ import annotations

import pytest
import torch
from mlpfusion_chunked import Chunked

from mlpfusion import GatedMLP, MLPSpec
from mlpfusion.module import PackedGatedMLP


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


@pytest.mark.parametrize("up_first", [False, True])
def test_gate_and_up_may_be_one_layer(up_first):
    both, down = torch.nn.Linear(16, 48), torch.nn.Linear(24, 16)
    packed = {"gate_up": both, "down": down, "activation": "silu", "up_first": up_first}
    x = torch.randn(1500, 16)
    expected = PackedGatedMLP.around_packed(**packed, backend="eager")(x)
    torch.testing.assert_close(PackedGatedMLP.around_packed(**packed, backend=Chunked())(x), expected)


def test_autocast_gives_what_eager_gives():
    mlp, x = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32")), torch.randn(1500, 16)
    with torch.autocast("cpu", torch.bfloat16):
        expected = mlp(x)
        y = mlp.set_backend(Chunked())(x)
    assert y.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)


def test_one_object_serves_all_layers_of_a_model():
    model = torch.nn.Sequential(
        *(GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32")) for _ in "ab")
    )
    x, shared = torch.randn(70, 16), Chunked()
    expected = model(x)
    for mlp in model:
        mlp.set_backend(shared)
    shared.rows = 32  # of both layers
    seen = []
    model[1].gate_proj.register_forward_hook(lambda module, given, found: seen.append(found.shape[0]))
    torch.testing.assert_close(model(x), expected)
    assert seen == [32, 32, 6]


def test_no_slice_is_larger_than_promised():
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32"))
    seen = []
    mlp.gate_proj.register_forward_hook(lambda module, given, found: seen.append(found.shape[0]))
    mlp.set_backend("chunked")(torch.randn(2500, 16))
    assert seen == [1024, 1024, 452]
    assert max(seen) == Chunked.rows
