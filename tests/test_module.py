"""`GatedMLP`: one set of weights, any backend."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from mlpfusion.errors import BackendUnavailableError, UnknownBackendError, UsageError
from mlpfusion.module import GatedMLP
from mlpfusion.spec import ACTIVATIONS, MLPSpec

SPEC = MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32")
# Those that run on a CPU under Triton's interpreter.
HERE = ("eager", "triton", "packed")
KEYS = ["gate_proj.weight", "up_proj.weight", "down_proj.weight"]


def x(*shape, spec=SPEC):
    return torch.randn(*shape, spec.hidden_size, dtype=getattr(torch, spec.dtype))


class WithModule:
    """A backend that binds a module of its own."""

    name = "with-module"

    def unsupported(self, spec, device):
        return None

    def bind(self, mlp):
        return nn.Sequential(mlp.gate_proj, nn.Linear(24, 16))


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_every_backend_computes_the_same_function(backend, activation, bias):
    torch.manual_seed(0)
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32", activation=activation, bias=bias))
    value = x(2, 3)
    expected = mlp(value)
    torch.testing.assert_close(mlp.set_backend(backend)(value), expected)
    assert mlp.backend == backend


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 0), (2, 3, 5)])
def test_any_leading_shape(backend, shape):
    mlp = GatedMLP(SPEC)
    value = x(*shape)
    expected = mlp(value)
    got = mlp.set_backend(backend)(value)
    assert got.shape == value.shape
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("backend", [*HERE, "compile"])
def test_gradients_equal_eagers(backend):
    torch.manual_seed(0)
    mlp, value = GatedMLP(SPEC), x(5).requires_grad_()
    inputs = (value, *mlp.parameters())
    expected = torch.autograd.grad(mlp(value).square().sum(), inputs)
    got = torch.autograd.grad(mlp.set_backend(backend)(value).square().sum(), inputs)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", [*HERE, WithModule()])
def test_the_state_dict_does_not_depend_on_the_backend(backend):
    mlp = GatedMLP(SPEC, backend=backend)
    assert list(mlp.state_dict()) == KEYS
    GatedMLP(SPEC).load_state_dict(mlp.state_dict())


@pytest.mark.parametrize("backend", [*HERE, "compile"])
def test_a_copy_has_weights_and_a_backend_of_its_own(backend):
    mlp = GatedMLP(SPEC, backend=backend)
    twin = copy.deepcopy(mlp)
    value = x(2)
    assert twin.backend == backend
    torch.testing.assert_close(twin(value), mlp(value))
    with torch.no_grad():
        twin.down_proj.weight.zero_()
    assert twin(value).abs().max() == 0
    assert mlp(value).abs().max() > 0


@pytest.mark.parametrize("made", [copy.deepcopy, lambda mlp: pickle.loads(pickle.dumps(mlp))])
def test_a_copy_of_a_compiled_module_runs_its_own_weights(made):
    mlp = GatedMLP(SPEC)
    mlp.compile(backend="eager")
    value = x(2)
    expected = mlp(value)
    twin = made(mlp)
    with torch.no_grad():
        mlp.down_proj.weight.zero_()
    torch.testing.assert_close(twin(value), expected)


@pytest.mark.parametrize("backend", HERE)
def test_a_module_survives_pickling(backend):
    mlp = GatedMLP(SPEC, backend=backend)
    buffer = io.BytesIO()
    torch.save(mlp, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    value = x(2)
    torch.testing.assert_close(loaded(value), mlp(value))


@pytest.mark.parametrize("backend", HERE)
def test_an_update_of_the_weights_is_seen(backend):
    mlp = GatedMLP(SPEC, backend=backend)
    fresh = GatedMLP(SPEC)
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    mlp(x(3)).square().sum().backward()
    optimizer.step()
    fresh.load_state_dict(mlp.state_dict())
    value = x(2)
    torch.testing.assert_close(mlp(value), fresh(value))
    mlp.load_state_dict(GatedMLP(SPEC).state_dict())
    fresh.load_state_dict(mlp.state_dict())
    torch.testing.assert_close(mlp(value), fresh(value))


@pytest.mark.parametrize("backend", HERE)
def test_a_change_of_dtype_is_followed(backend):
    mlp = GatedMLP(SPEC, backend=backend).half()
    assert mlp.spec.dtype == "float16"
    assert mlp(x(2).half()).dtype == torch.float16
    with pytest.raises(UsageError, match=r"'float64'.*bfloat16, float16, float32"):
        mlp.double()(x(2).double())
    assert mlp.float()(x(2)).dtype == torch.float32


@pytest.mark.parametrize("backend", HERE)
def test_autocast_gives_eagers_dtypes(backend):
    mlp, value = GatedMLP(SPEC), x(3).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = mlp(value)
        got = mlp.set_backend(backend)(value)
    assert got.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(got, expected, rtol=5e-2, atol=5e-2)
    grads = torch.autograd.grad(got.float().sum(), (value, *mlp.parameters()))
    assert {grad.dtype for grad in grads} == {torch.float32}


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_gives_the_same_gradients(backend, reentrant):
    from torch.utils.checkpoint import checkpoint

    mlp, value = GatedMLP(SPEC, backend=backend), x(3).requires_grad_()
    expected = torch.autograd.grad(mlp(value).sum(), value)[0]
    checkpoint(mlp, value, use_reentrant=reentrant).sum().backward()
    assert torch.equal(value.grad, expected)


@pytest.mark.parametrize("backend", HERE)
def test_it_compiles_whole_and_trains(backend):
    mlp, value = GatedMLP(SPEC, backend=backend), x(3).requires_grad_()
    expected = torch.autograd.grad(mlp(value).square().sum(), (value, *mlp.parameters()))
    compiled = torch.compile(mlp, fullgraph=True)
    got = torch.autograd.grad(compiled(value).square().sum(), (value, *mlp.parameters()))
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", HERE)
def test_second_order_gradients_are_right(backend):
    """Also when another term of the loss reaches the input."""
    torch.manual_seed(1)
    mlp, value = GatedMLP(SPEC), x(3).requires_grad_()

    def second_order():
        y = mlp(value)
        first = torch.autograd.grad(y.square().sum() + value.pow(3).sum(), value, create_graph=True)[0]
        return torch.autograd.grad(first.square().sum(), (value, *mlp.parameters()))

    expected = second_order()
    mlp.set_backend(backend)
    for mine, theirs in zip(second_order(), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


class Adapter(nn.Module):
    """Stands for LoRA: a projection wrapped after the module was bound."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return self.base(x) + 1


@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "down_proj"])
@pytest.mark.parametrize("backend", ["eager", "triton", "compile"])
def test_a_projection_that_is_replaced_takes_part(backend, part):
    mlp, value = GatedMLP(SPEC, backend=backend), x(2)
    setattr(mlp, part, Adapter(getattr(mlp, part)))
    gate, up, down = mlp.gate_proj, mlp.up_proj, mlp.down_proj
    expected = down(nn.functional.gelu(gate(value), approximate="tanh") * up(value))
    with torch.set_grad_enabled(backend != "compile"):  # whose backward would be compiled too
        torch.testing.assert_close(mlp(value), expected)
    delattr(mlp, part)
    with pytest.raises(AttributeError, match=part):
        mlp(value)


def test_a_backend_that_would_bypass_the_replacement_refuses():
    mlp = GatedMLP(SPEC, backend="packed")
    mlp.gate_proj = Adapter(mlp.gate_proj)
    with pytest.raises(BackendUnavailableError, match=r"gate_proj is a Adapter"):
        mlp(x(2))


@pytest.mark.parametrize("backend", HERE)
def test_another_activation_is_followed(backend):
    mlp, value = GatedMLP(SPEC, backend=backend), x(2)
    mlp.activation = "relu"
    expected = mlp.down_proj(mlp.gate_proj(value).relu() * mlp.up_proj(value))
    torch.testing.assert_close(mlp(value), expected)
    assert mlp.spec.activation == "relu"


def test_a_failed_move_is_made_good_once():
    binds = []

    class Counting:
        name = "counting"

        def unsupported(self, spec, device):
            return None

        def bind(self, mlp):
            binds.append(1)
            return lambda value: value

    mlp = GatedMLP(SPEC, backend=Counting()).double()
    for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj):
        part.float()
    for _ in range(5):
        mlp(x(1))
    assert len(binds) == 2


@pytest.mark.parametrize("bad", [42, None, object()])
def test_what_is_no_backend_is_named(bad):
    with pytest.raises(UsageError, match="backend must be a name or a Backend"):
        GatedMLP(SPEC).set_backend(bad)


def test_an_unknown_backend_leaves_the_old_one():
    mlp = GatedMLP(SPEC)
    with pytest.raises(UnknownBackendError, match="unknown backend 'nope'; known: eager, compile"):
        mlp.set_backend("nope")
    with pytest.raises(BackendUnavailableError, match="CUDA graphs need a GPU"):
        mlp.set_backend("compile-cudagraphs")
    assert mlp.backend == "eager"
    mlp(x(1))


def test_more_layers_than_the_recompile_limit_all_stay_compiled():
    """torch.compile gives up on a code object after 8 recompilations; 12 layers of one shape need one."""
    from torch._dynamo.utils import counters

    layers = [GatedMLP(SPEC, backend="compile") for _ in range(12)]
    value = x(2)
    counters.clear()
    for layer in layers:
        torch.testing.assert_close(layer(value), layer.set_backend("eager")(value))
    assert counters["stats"]["unique_graphs"] <= len(layers)
    assert not counters["recompile_limit"]


@pytest.mark.full  # it compiles more than a dozen
def test_more_kinds_of_module_than_the_recompile_limit_all_compile():
    """What one kind recompiles is not counted against another."""
    with torch._dynamo.config.patch(recompile_limit=2), torch.no_grad():
        for size in range(8, 12):
            mlp = GatedMLP(MLPSpec(hidden_size=size, intermediate_size=2 * size, dtype="float32"), backend="compile")
            value = torch.randn(2, size)
            torch.testing.assert_close(mlp(value), mlp.set_backend("eager")(value))


@pytest.mark.full  # as above
def test_where_pytorch_gives_up_compiling_the_backend_says_so():
    mlp = GatedMLP(MLPSpec(hidden_size=8, intermediate_size=40, dtype="float32"), backend="compile")
    with torch._dynamo.config.patch(recompile_limit=1):
        with torch.no_grad():
            mlp(torch.randn(2, 8))
        with pytest.raises(BackendUnavailableError, match=r"'compile'.*more than 1 kinds of call.*recompile_limit"):
            mlp(torch.randn(2, 8))
    torch.compiler.reset()
    mlp(torch.randn(2, 8)).sum().backward()


def test_hooks_on_a_projection_fire_or_the_backend_refuses():
    calls = []
    for backend in ("eager", "triton"):
        mlp = GatedMLP(SPEC, backend=backend)
        mlp.gate_proj.register_forward_hook(lambda *_, name=backend: calls.append(name))
        mlp(x(1))
    assert calls == ["eager", "triton"]
    mlp.set_backend("eager")
    with pytest.raises(BackendUnavailableError, match=r"'packed'.*gate_proj has hooks"):
        mlp.set_backend("packed")
