"""`eager`: the module as PyTorch runs it, hooks and adapters on its projections included."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mlpfusion import reference
from mlpfusion.backends.eager import FUNCTIONS, Eager, activation_function, forward_of
from mlpfusion.device import detect
from mlpfusion.module import GatedMLP
from mlpfusion.spec import ACTIVATIONS, DTYPES, MLPSpec

pytestmark = pytest.mark.values


def spec(**changes: object) -> MLPSpec:
    return MLPSpec(**{"hidden_size": 16, "intermediate_size": 32, "dtype": "float32", **changes})


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_spec_runs(activation: str, dtype: str) -> None:
    assert Eager().unsupported(spec(activation=activation, dtype=dtype, bias=True), detect("cpu")) is None


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_each_activation_is_that_of_the_fp64_formula(activation: str) -> None:
    assert set(FUNCTIONS) == set(ACTIVATIONS)
    x = torch.linspace(-8, 8, 201, dtype=torch.float64)
    torch.testing.assert_close(
        activation_function(activation)(x), reference.activate(x, activation), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_call_is_three_products_the_activation_and_one_product(activation: str, bias: bool) -> None:
    torch.manual_seed(0)
    mlp, x = GatedMLP(spec(activation=activation, bias=bias)), torch.randn(2, 3, 16)
    right = mlp.down_proj(FUNCTIONS[activation](mlp.gate_proj(x)) * mlp.up_proj(x))
    assert torch.equal(Eager().bind(mlp)(x), right)
    assert torch.equal(forward_of(mlp)(x), right)


def test_hooks_and_replaced_parameters_take_part() -> None:
    mlp, x, seen = GatedMLP(spec()), torch.randn(2, 16), []
    call = Eager().bind(mlp)
    mlp.up_proj.register_forward_hook(lambda *_: seen.append("up"))
    before = call(x)
    mlp.down_proj.weight = nn.Parameter(2 * mlp.down_proj.weight.detach())
    torch.testing.assert_close(call(x), 2 * before)
    assert seen == ["up", "up"]
