"""The `liger` backend: its reasons, its numbers in Triton's interpreter, and what its backward refuses."""

from __future__ import annotations

import builtins
import importlib
import os
import socket
from importlib import metadata, util
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
import triton
import triton.language as tl
from torch import nn
from torch.utils.checkpoint import checkpoint

from mlpfusion.backends.liger import Liger
from mlpfusion.device import Device
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.module import GatedMLP
from mlpfusion.reference import Case, error, make_case, oracle, step
from mlpfusion.spec import MLPSpec, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

CPU = Device(kind="cpu", name="a CPU")
H100 = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", runtime="cuda", capability=(9, 0))
T4 = Device(kind="cuda", name="Tesla T4", runtime="cuda", capability=(7, 5))
B200 = Device(kind="cuda", name="NVIDIA B200", runtime="cuda", capability=(10, 0))
INTERPRETED = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", runtime="cuda", capability=(9, 0), interpreted=True)
TOLERANCE = 1e-5  # fp32 against fp64, relative to max(rms, |value|): a dozen roundings of 6e-8 and their sums

interpreted = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="runs in Triton's interpreter")


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


def spec(**changes: Any) -> MLPSpec:
    return MLPSpec(**{"hidden_size": 16, "intermediate_size": 40, "dtype": "float32", **changes})


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail whatever imports Liger or opens a connection."""
    load = builtins.__import__

    def guarded(name: str, *args: Any, **kwargs: Any) -> Any:
        assert name.partition(".")[0] != "liger_kernel", "liger_kernel was imported"
        return load(name, *args, **kwargs)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(builtins, "__import__", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


REASONS = [
    ({}, CPU, "need a GPU; this run is on the CPU"),
    ({}, INTERPRETED, "TRITON_INTERPRET=1"),
    ({"activation": "gelu"}, H100, "no gated MLP with gelu; valid: gelu_tanh, silu (its GEGLU is always the tanh"),
    ({"activation": "relu"}, H100, "no gated MLP with relu"),
    ({"bias": True}, H100, "no biases"),
    ({"intermediate_size": 65537}, H100, "intermediate_size 65537 is over 65536"),
    ({"intermediate_size": 65537}, B200, "intermediate_size 65537 is over 65536"),
    ({"intermediate_size": 65537, "activation": "silu"}, H100, "intermediate_size 65537 is over 65536"),
    ({"dtype": "bfloat16"}, T4, "compute capability 8.0 for bfloat16; Tesla T4 has less"),
]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("changes", "device", "text"), REASONS)
def test_limits_are_told_without_importing_liger(changes: dict[str, Any], device: Device, text: str) -> None:
    reason = Liger().unsupported(spec(**changes), device)
    assert reason is not None
    assert text in reason
    assert "\n" not in reason


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("changes", "device"),
    [
        ({}, H100),
        ({"activation": "silu", "dtype": "bfloat16"}, H100),
        ({"intermediate_size": 65536}, H100),
        ({"intermediate_size": 65537, "activation": "silu"}, B200),  # its SwiGLU tiles wide rows there
        ({"dtype": "float16"}, T4),
    ],
)
def test_what_liger_can_run_is_supported(changes: dict[str, Any], device: Device) -> None:
    assert Liger().unsupported(spec(**changes), device) is None


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("version", "usable"),
    [
        ("0.8.1", False),
        ("0.8.2", True),
        ("0.8.10", True),
        ("0.8.5.post1", True),
        ("0.9", False),
        ("0.9.0rc1", False),
        ("1.0", False),
    ],
)
def test_other_versions_are_named(monkeypatch: pytest.MonkeyPatch, version: str, usable: bool) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: version)
    reason = Liger().unsupported(spec(), H100)
    assert reason == (None if usable else f"liger-kernel {version} is installed, need liger-kernel>=0.8.2,<0.9")


@pytest.mark.usefixtures("untouched")
def test_a_missing_package_is_named_as_pip_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    assert Liger().unsupported(spec(), H100) == "liger-kernel is not installed (pip install 'mlpfusion[liger]')"
    with pytest.raises(BackendUnavailableError, match=r"'liger'.*not installed"):
        Liger().bind(GatedMLP(spec()))


@pytest.mark.usefixtures("untouched")
def test_a_source_tree_without_metadata_has_an_unknown_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert "its version is unknown" in (Liger().unsupported(spec(), H100) or "")


def test_the_module_refuses_it_on_the_cpu_and_keeps_its_backend() -> None:
    mlp = GatedMLP(spec())
    with pytest.raises(BackendUnavailableError, match=r"'liger' is unavailable: .* need a GPU"):
        mlp.set_backend("liger")
    assert mlp.backend == "eager"


def test_bind_alone_refuses_what_liger_cannot_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    for changes in ({"activation": "gelu"}, {"bias": True}):
        with pytest.raises(BackendUnavailableError, match="'liger'"):
            Liger().bind(GatedMLP(spec(**changes)))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(BackendUnavailableError, match="need a GPU"):
        Liger().bind(GatedMLP(spec()))


def test_hooks_and_adapters_are_refused() -> None:
    hooked = GatedMLP(spec())
    hooked.up_proj.register_forward_hook(lambda *_: None)
    with pytest.raises(BackendUnavailableError, match=r"'liger'.*up_proj"):
        Liger().bind(hooked)

    class Adapter(nn.Linear):
        pass

    adapted = GatedMLP(spec())
    adapted.down_proj = Adapter(40, 16, bias=False)
    with pytest.raises(BackendUnavailableError, match=r"'liger'.*down_proj.*Adapter"):
        Liger().bind(adapted)


# ---- numbers, in Triton's interpreter with a tanh that it has --------------------------------------------------------


@pytest.fixture
def geglu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("liger_kernel.ops.geglu"), "tanh", tanh)


def case(mode: str = "training", **changes: Any) -> Case:
    return make_case(Workload(spec=spec(**changes), batch=2, seq=3, mode=mode), torch.device("cpu"), seed=0)


def worst(values: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> float:
    maxima = [error(value, reference).maximum for value, reference in zip(values, exact, strict=True)]
    return max(float("inf") if maximum is None else maximum for maximum in maxima)


@interpreted
@pytest.mark.usefixtures("geglu")
@pytest.mark.parametrize("size", [1, 40, 127])
def test_output_and_gradients_match_fp64(size: int) -> None:
    given = case(intermediate_size=size)
    call = Liger().bind(given.mlp)
    assert worst(step(call, given)(), oracle(given)) < TOLERANCE


@interpreted
@pytest.mark.usefixtures("geglu")
def test_it_runs_on_the_weights_themselves() -> None:
    given = case("inference")
    keys = list(given.mlp.state_dict())
    call = Liger().bind(given.mlp)
    with torch.no_grad():
        for parameter in given.mlp.parameters():
            parameter.mul_(0.5)
    assert worst(step(call, given)(), oracle(given)) < TOLERANCE
    assert list(given.mlp.state_dict()) == keys


@interpreted
@pytest.mark.usefixtures("geglu")
def test_an_output_saved_upstream_survives_the_in_place_backward() -> None:
    given = case()
    call = Liger().bind(given.mlp)
    leaf = torch.randn(2, 3, 16, requires_grad=True)
    (grad,) = torch.autograd.grad(call(leaf.exp()), leaf, given.dy)  # exp keeps its output for its own backward
    exact = oracle(given._replace(x=leaf.detach().exp().requires_grad_()))[1] * leaf.detach().double().exp()
    assert error(grad, exact).maximum < TOLERANCE


@interpreted
@pytest.mark.usefixtures("geglu")
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(reentrant: bool) -> None:
    given = case()
    bound = Liger().bind(given.mlp)
    checkpointed = checkpoint(bound, given.x, use_reentrant=reentrant)
    checkpointed.backward(given.dy)
    grads = tuple(tensor.grad for tensor in (given.x, *given.mlp.parameters()))
    assert worst((checkpointed.detach(), *grads), oracle(given)) < TOLERANCE


def cube_too(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return call(x).sum() + (x**3).sum()


@interpreted
@pytest.mark.usefixtures("geglu")
@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True")
@pytest.mark.parametrize("loss", [lambda call, x: call(x).sum(), cube_too], ids=["alone", "another term reaches x"])
def test_double_backward_is_refused_by_name(loss: Callable[..., Tensor]) -> None:
    given = case()
    call = Liger().bind(given.mlp)
    with pytest.raises(BackendUnavailableError, match=r"'liger'.*create_graph=True"):
        torch.autograd.grad(loss(call, given.x), given.x, create_graph=True)
    with pytest.raises(BackendUnavailableError, match=r"'liger'.*create_graph=True"):
        loss(call, given.x).backward(create_graph=True)


@interpreted
@pytest.mark.usefixtures("geglu")
def test_a_second_backward_is_refused_and_new_calls_are_not() -> None:
    given = case()
    call = Liger().bind(given.mlp)
    y = call(given.x)
    inputs = (given.x, *given.mlp.parameters())
    first = torch.autograd.grad(y, inputs, given.dy, retain_graph=True)
    with pytest.raises(BackendUnavailableError, match=r"'liger'.*second backward"):
        torch.autograd.grad(y, inputs, given.dy)
    assert worst(first, oracle(given)[1:]) < TOLERANCE
    assert worst(step(call, given)(), oracle(given)) < TOLERANCE


@interpreted
@pytest.mark.usefixtures("geglu")
def test_a_refused_double_backward_leaves_the_first_order_one_right() -> None:
    given = case()
    y = Liger().bind(given.mlp)(given.x)
    with pytest.raises(BackendUnavailableError):
        torch.autograd.grad(y.sum(), given.x, create_graph=True)
    (grad,) = torch.autograd.grad(y, given.x, given.dy)
    assert error(grad, oracle(given)[1]).maximum < TOLERANCE


@interpreted
@pytest.mark.usefixtures("geglu")
def test_frozen_weights_need_no_guard() -> None:
    given = case("inference")
    call = Liger().bind(given.mlp.requires_grad_(False))
    assert not call(given.x).requires_grad


@interpreted
def test_silu_goes_through_ligers_swiglu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel does not run in the interpreter, so a plain function takes the place of Liger's."""
    layers = importlib.import_module("liger_kernel.transformers.swiglu")
    plain = SimpleNamespace(apply=lambda gate, up, *_: nn.functional.silu(gate) * up)
    monkeypatch.setattr(layers, "LigerSiLUMulFunction", plain)
    given = case("inference", activation="silu")
    assert worst(step(Liger().bind(given.mlp), given)(), oracle(given)) < TOLERANCE
