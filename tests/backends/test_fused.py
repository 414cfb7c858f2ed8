"""`fused`: what it refuses, and one module under it, in Triton's interpreter."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support import in_this_process
from torch import nn

from mlpfusion.backend import Backend
from mlpfusion.backends.eager import Eager
from mlpfusion.backends.fused import Fused
from mlpfusion.device import Device, detect
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.measure.memory import saved_bytes
from mlpfusion.module import GatedMLP
from mlpfusion.reference import judge, make_case, oracle, step
from mlpfusion.spec import ACTIVATIONS, MLPSpec, Workload
from mlpfusion.stages.profile import run
from mlpfusion.workers import supervise

if TYPE_CHECKING:
    from collections.abc import Callable

CPU = Device(kind="cpu", name="a CPU")
EMULATED = Device(kind="cpu", name="a CPU", interpreted=True)
SPEC = MLPSpec(hidden_size=16, intermediate_size=48, dtype="float32", bias=True)
PARTS = ("gate_proj", "up_proj", "down_proj")


def cuda(*capability: int, runtime: Any = "cuda", interpreted: bool = False) -> Device:
    major, minor = capability
    return Device(kind="cuda", name="a GPU", runtime=runtime, capability=(major, minor), interpreted=interpreted)


def spec(**changes: Any) -> MLPSpec:
    return MLPSpec(**{"hidden_size": 768, "intermediate_size": 3072, **changes})


def test_it_is_a_backend() -> None:
    assert isinstance(Fused(), Backend)
    assert Fused.name == "fused"


@pytest.mark.parametrize(
    ("changes", "device", "texts"),
    [
        ({"hidden_size": 760}, cuda(9, 0), ["hidden_size must be a multiple of 16, got 760"]),
        ({"intermediate_size": 3080}, cuda(9, 0), ["intermediate_size must be a multiple of 16, got 3080"]),
        ({"hidden_size": 1}, EMULATED, ["hidden_size must be a multiple of 16, got 1"]),
        ({}, cuda(9, 4, runtime="rocm"), ["not written for AMD GPUs"]),
        ({}, cuda(7, 5), ["compute capability 8.0 or later; a GPU has (7, 5)"]),
        ({"dtype": "float16"}, CPU, ["need a GPU; this run is on the CPU", "TRITON_INTERPRET=1"]),
        ({}, CPU, ["need a GPU", "interpreter computes bfloat16 matrix products wrongly", "float32 or float16"]),
        ({}, EMULATED, ["interpreter computes bfloat16 matrix products wrongly", "float16 or float32"]),
        ({}, cuda(9, 0, interpreted=True), ["interpreter computes bfloat16 matrix products wrongly"]),
    ],
)
def test_limits_are_told_in_one_line_with_their_numbers(
    changes: dict[str, Any], device: Device, texts: list[str]
) -> None:
    reason = Fused().unsupported(spec(**changes), device)
    assert reason is not None
    assert "\n" not in reason
    assert all(text in reason for text in texts)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_the_kernels_can_run_is_supported(activation: Any, dtype: Any) -> None:
    for device in (cuda(8, 0), cuda(8, 6), cuda(8, 9), cuda(9, 0), cuda(10, 0), cuda(12, 0)):
        assert Fused().unsupported(spec(activation=activation, dtype=dtype, bias=True), device) is None
    if dtype != "bfloat16":
        assert Fused().unsupported(spec(activation=activation, dtype=dtype), EMULATED) is None


@pytest.mark.parametrize(
    ("triton_version", "numpy_version", "runs"),
    [("3.6.0", "2.3.5", True), ("3.6.0", "2.4.6", False), ("3.6.0", "3.0.1", False), ("3.7.1", "2.4.6", True)],
)
def test_an_interpreter_without_loops_is_told_with_both_versions(
    monkeypatch: pytest.MonkeyPatch, triton_version: str, numpy_version: str, runs: bool
) -> None:
    """As seen with Triton 3.6.0 and NumPy 2.4.6: "only 0-dimensional arrays can be converted to Python scalars"."""
    monkeypatch.setattr("triton.__version__", triton_version)
    monkeypatch.setattr("numpy.__version__", numpy_version)
    reason = Fused().unsupported(spec(dtype="float16"), EMULATED)
    assert (reason is None) is runs
    assert runs or f"Triton {triton_version} cannot run loops with NumPy {numpy_version}" in str(reason)
    assert Fused().unsupported(spec(dtype="float16"), cuda(9, 0)) is None


# ---- binding ---------------------------------------------------------------------------------------------------------


def refused(mlp: GatedMLP, text: str) -> None:
    """Binding names the reason in one line, and the backend that was there stays."""
    with pytest.raises(BackendUnavailableError, match=f"'fused'.*{text}") as raised:
        mlp.set_backend("fused")
    assert "\n" not in str(raised.value)
    assert mlp.backend == "eager"


class Adapter(nn.Linear):
    """Stands for LoRA and quantised layers."""


@pytest.mark.parametrize("part", PARTS)
def test_projections_that_are_more_than_a_product_are_refused_by_name(part: str) -> None:
    mlp = GatedMLP(SPEC)
    setattr(mlp, part, Adapter(*reversed(getattr(mlp, part).weight.shape)))
    refused(mlp, f"{part} is a Adapter")
    mlp = GatedMLP(SPEC)
    getattr(mlp, part).register_forward_hook(lambda *_: None)
    refused(mlp, f"{part} has hooks")
    mlp = GatedMLP(SPEC)
    getattr(mlp, part).forward = lambda x: x
    refused(mlp, f"{part} has its forward replaced")
    if part != "gate_proj":
        mlp = GatedMLP(SPEC)
        getattr(mlp, part).weight.data = getattr(mlp, part).weight.data.half()
        refused(mlp, f"{part} is torch.float16")


@pytest.mark.parametrize("part", PARTS)
def test_weights_that_cannot_be_read_where_they_lie_are_refused_by_name(part: str) -> None:
    name = part.replace("proj", "weight")
    changes: list[tuple[Callable[[torch.Tensor], torch.Tensor], str]] = [
        (lambda w: w.T.contiguous().T, f"{name} must have rows of adjacent elements"),
        (lambda w: w.new_empty(w.shape[0], w.shape[1] + 1)[:, :-1], f"{name} must have rows of adjacent elements"),
        (lambda w: w.new_empty(w.numel() + 1)[1:].view(w.shape), f"{name} must start at a multiple of 16 bytes"),
    ]
    for change, text in changes:
        mlp = GatedMLP(SPEC)
        linear = getattr(mlp, part)
        linear.weight.data = change(linear.weight.data)
        refused(mlp, text)


def test_tied_weights_and_half_a_bias_are_refused() -> None:
    mlp = GatedMLP(SPEC)
    mlp.up_proj.weight = mlp.gate_proj.weight
    refused(mlp, "gate_weight and up_weight share one memory")
    mlp = GatedMLP(SPEC)
    mlp.up_proj.bias = None
    refused(mlp, "only one of gate_proj and up_proj has a bias")


def test_binding_moves_and_copies_nothing() -> None:
    mlp = GatedMLP(SPEC)
    before = {name: (value, value.data_ptr(), value._version) for name, value in mlp.named_parameters()}
    keys = list(mlp.state_dict())
    mlp.set_backend("fused")
    mlp(torch.randn(3, 16)).sum().backward()
    assert {name: (value, value.data_ptr(), value._version) for name, value in mlp.named_parameters()} == before
    assert list(mlp.state_dict()) == keys
    assert len(keys) == 6


@pytest.mark.parametrize("change", ["hook", "pre_hook", "backward_hook", "backward_pre_hook", "forward"])
@pytest.mark.parametrize("part", PARTS)
def test_hooks_that_come_after_binding_are_refused_not_bypassed(part: str, change: str) -> None:
    mlp = GatedMLP(SPEC, backend="fused")
    linear = getattr(mlp, part)
    register = {
        "hook": linear.register_forward_hook,
        "pre_hook": linear.register_forward_pre_hook,
        "backward_hook": linear.register_full_backward_hook,
        "backward_pre_hook": linear.register_full_backward_pre_hook,
    }
    if change == "forward":
        linear.forward = lambda x: x
    else:
        register[change](lambda *_: None)
    for grad in (True, False):
        with torch.set_grad_enabled(grad), pytest.raises(BackendUnavailableError, match=r"'fused'.*would bypass"):
            mlp(torch.randn(2, 16))


# ---- running ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "mode", "recompute"),
    [("float16", "inference", False), ("float16", "training", False), ("float32", "training", True)],
)
def test_as_accurate_as_eager(dtype: Any, mode: Any, recompute: bool) -> None:
    workload = Workload(spec=spec(hidden_size=64, intermediate_size=160, dtype=dtype), batch=7, seq=23, mode=mode)
    given = make_case(workload, torch.device("cpu"), seed=0)
    mine = step(Fused(recompute=recompute).bind(given.mlp), given)()
    verdict = judge(mine, step(Eager().bind(given.mlp), given)(), oracle(given))
    assert verdict.ratio <= verdict.limit


@pytest.mark.parametrize(("recompute", "kept"), [(False, 16 + 2 * 48), (True, 16)])
def test_what_is_kept_for_backward(recompute: bool, kept: int) -> None:
    given = make_case(Workload(spec=SPEC, batch=2, seq=3, mode="training"), torch.device("cpu"), seed=0)
    assert saved_bytes(Fused(recompute=recompute).bind(given.mlp), given) == 6 * kept * 4


def near_eager(mlp: GatedMLP) -> None:
    x = torch.randn(3, 16)
    expected = Eager().bind(mlp)(x)
    # Sums that cancel keep the error of their terms, so it is the largest output that counts.
    assert (mlp(x) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_weights_that_change_are_seen_by_the_next_call() -> None:
    torch.manual_seed(0)
    mlp = GatedMLP(SPEC, backend="fused")
    near_eager(mlp)
    with torch.no_grad():
        mlp.gate_proj.weight.mul_(2)
    near_eager(mlp)
    mlp.load_state_dict(GatedMLP(SPEC).state_dict())
    near_eager(mlp)
    mlp.up_proj.weight.data = torch.randn(48, 16)
    near_eager(mlp)
    mlp.down_proj.weight = nn.Parameter(torch.randn(16, 48))
    near_eager(mlp)
    mlp.up_proj = nn.Linear(16, 48)
    near_eager(mlp)
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    mlp(torch.randn(3, 16)).square().sum().backward()
    optimizer.step()
    near_eager(mlp)
    mlp.half()
    x = torch.randn(3, 16).half()
    expected = Eager().bind(mlp)(x)
    assert (mlp(x) - expected).abs().max() <= 2e-2 * expected.abs().max()


@pytest.mark.parametrize("how", ["plain tensor", "functional call", "new parameter"])
@pytest.mark.parametrize("part", PARTS)
def test_weights_in_the_place_of_parameters_are_read(part: str, how: str) -> None:
    """As sharding, a functional call and `.to()` put them there."""
    mlp, x = GatedMLP(SPEC, backend=Fused()), torch.randn(3, SPEC.hidden_size)
    layer = mlp.get_submodule(part)
    other = torch.randn_like(layer.weight).detach() / 4
    with torch.no_grad():
        if how == "functional call":
            y = torch.func.functional_call(mlp, {f"{part}.weight": other}, (x,))
            layer.weight.copy_(other)
        elif how == "plain tensor":
            del layer.weight
            layer.weight = other
            y = mlp(x)
        else:
            layer.weight = nn.Parameter(other)
            y = mlp(x)
        assert torch.allclose(y, mlp.set_backend("eager")(x), atol=1e-6)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda mlp: pickle.loads(pickle.dumps(mlp))])
def test_copies_run_on_weights_of_their_own(duplicate: Callable[[GatedMLP], GatedMLP]) -> None:
    mlp, x = GatedMLP(SPEC, backend="fused"), torch.randn(3, 16)
    before, twin = mlp(x), duplicate(mlp)
    assert twin.backend == "fused"
    assert torch.equal(twin(x), before)
    with torch.no_grad():
        twin.gate_proj.weight.zero_()
    assert torch.equal(mlp(x), before)
    near_eager(twin)


def test_backends_are_exchanged_and_the_instance_keeps_its_option() -> None:
    mlp, x = GatedMLP(SPEC), torch.randn(3, 16)
    want = mlp(x)
    for backend in ("fused", "packed", "fused", "eager", Fused(recompute=True)):
        torch.testing.assert_close(mlp.set_backend(backend)(x), want)
    twin = copy.deepcopy(mlp)
    assert isinstance(twin._backend, Fused)
    assert twin._backend.recompute


def test_a_module_compiles_without_graph_breaks() -> None:
    torch.compiler.reset()
    mlp, x = GatedMLP(SPEC, backend="fused"), torch.randn(3, 16)
    y = torch.compile(mlp, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(y, mlp(x))
    got, want = (torch.autograd.grad(each.square().sum(), list(mlp.parameters())) for each in (y, mlp(x)))
    assert all(torch.equal(*pair) for pair in zip(got, want, strict=True))


def test_an_input_of_another_dtype_or_size_is_named() -> None:
    mlp = GatedMLP(SPEC, backend="fused")
    with pytest.raises(TypeError, match=r"gate_weight must have x's dtype torch\.float16, got torch\.float32"):
        mlp(torch.randn(3, 16).half())
    with pytest.raises(ValueError, match=r"x must be \[..., 16\] for weights of 16 columns, got \(3, 8\)"):
        mlp(torch.randn(3, 8))


# ---- a profile without a GPU -----------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="the run without a GPU")
@pytest.mark.parametrize(
    ("dtype", "mode", "status", "text"),
    [
        ("bfloat16", "inference", "unavailable", "interpreter computes bfloat16 matrix products wrongly"),
        ("float16", "training", "ok", "emulated: Triton's interpreter on the CPU"),
    ],
)
def test_a_profile_emulates_it_where_that_is_right(
    dtype: Any, mode: Any, status: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "run", in_this_process.run)
    workload = Workload(spec=spec(hidden_size=32, intermediate_size=48, dtype=dtype), batch=1, seq=8, mode=mode)
    profile = run.profile(workload, backends=["eager", "fused"], device="cpu", rounds=1)
    eager, row = profile.rows
    assert eager.status == "ok"
    assert row.status == status
    assert row.emulated == (status == "ok")
    assert text in (row.reason or "")
    if row.accuracy is not None:
        assert row.accuracy.ratio <= row.accuracy.limit
    assert (row.accuracy is None) == (status != "ok")
    assert dict(run.backends(workload.spec, device="cpu"))["fused"] == Fused().unsupported(workload.spec, detect("cpu"))
