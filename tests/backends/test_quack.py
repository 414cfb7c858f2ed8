"""The `quack` backend: its layouts and gradients with a stand-in for quack's kernels."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support import fake_quack
from support.fake_quack import Kernels
from support.quack_cases import case
from torch import Tensor
from torch._subclasses import FakeTensorMode

from mlpfusion.backends import quack as adapter
from mlpfusion.backends.eager import Eager, activation_function
from mlpfusion.backends.quack import ACTIVATIONS, Quack
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.measure.memory import saved_bytes
from mlpfusion.reference import Case, judge, oracle, step

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.spec import Activation

kernels = fake_quack.kernels  # a fixture


def ratio(given: Case, call: Callable[[Tensor], Tensor]) -> float:
    """The worst error against fp64 over eager's own."""
    eager = step(Eager().bind(given.mlp), given)()
    return judge(step(call, given)(), eager, oracle(given)).ratio


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_and_gradients(kernels: Kernels, activation: str, dtype: str, mode: str) -> None:
    given = case(mode, activation=activation, dtype=dtype)
    assert ratio(given, Quack().bind(given.mlp)) <= 2
    kinds = [name for name, _, _ in kernels.calls]
    assert kinds == (["gemm_gated"] if mode == "inference" else ["gemm_gated", "gemm_dgated", "gemm", "gemm"])
    assert kernels.calls[0][2]["activation"] == ACTIVATIONS[activation]
    assert kernels.calls[0][2]["store_preact"] is (mode == "training")
    assert all(options["tuned"] for _, _, options in kernels.calls)


def test_untuned_kernels_are_asked_for_everywhere(kernels: Kernels) -> None:
    given = case()
    step(Quack(tuned=False).bind(given.mlp), given)()
    assert [options["tuned"] for _, _, options in kernels.calls] == [False] * 4


def test_biases_in_inference(kernels: Kernels) -> None:
    given = case("inference", bias=True)
    assert ratio(given, Quack().bind(given.mlp)) <= 2
    assert kernels.calls[0][2]["bias"].shape == (96,)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("one", [["gate_proj"], ["up_proj"], ["down_proj"], ["gate_proj", "up_proj"]])
@pytest.mark.parametrize("bias", [True, False])
def test_biases_that_come_or_go_after_binding_are_followed_or_refused(bias: bool, one: list[str], grad: bool) -> None:
    given = case("inference", bias=bias, dtype="float16")
    mlp, x = given.mlp.requires_grad_(False), given.x.detach()
    call = Quack().bind(mlp)
    for name in one:
        part = getattr(mlp, name)
        part.bias = None if bias else torch.nn.Parameter(torch.randn(part.weight.shape[0]).half(), requires_grad=False)
    known = {"gate_proj", "up_proj"} & set(one)
    with torch.set_grad_enabled(grad):
        if len(known) == 1:
            with pytest.raises(BackendUnavailableError, match=r"gate_proj.*up_proj.*set_backend\('quack'\)"):
                call(x)
            return
        if known and not bias:
            with pytest.raises(BackendUnavailableError, match=r"biases of gate_proj and up_proj.*set_backend\('quack'"):
                call(x)
            call = Quack().bind(mlp)
        torch.testing.assert_close(call(x), Eager().bind(mlp)(x), rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("kernels")
def test_half_a_bias_is_refused_by_the_operator_of_a_compiler_too() -> None:
    given = case("inference", bias=True)
    call = Quack().bind(given.mlp)
    given.mlp.gate_proj.bias = None
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    with torch.no_grad(), pytest.raises(BackendUnavailableError, match=r"gate_proj.*up_proj.*set_backend\('quack'\)"):
        compiled(given.x)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("change", ["turned", "cut", "another dtype"])
def test_the_same_address_is_not_the_same_weight(change: str, grad: bool) -> None:
    given = case("inference", intermediate_size=32)
    mlp = given.mlp.requires_grad_(False)
    call = Quack().bind(mlp)
    for part in (mlp.gate_proj, mlp.up_proj):
        weight = part.weight.data
        part.weight.data = (
            weight.t() if change == "turned" else weight[:16] if change == "cut" else weight.view(torch.float16)
        )
    if change == "cut":
        mlp.down_proj.weight.data = mlp.down_proj.weight.data[:, :16]
    x = given.x.detach().requires_grad_(grad)
    with torch.set_grad_enabled(grad), pytest.raises(BackendUnavailableError, match=r"set_backend\('quack'\)|x is"):
        call(x)


def test_biases_in_training_are_refused(kernels: Kernels) -> None:
    given = case(bias=True)
    call = Quack().bind(given.mlp)
    with pytest.raises(BackendUnavailableError, match=r"'quack'.*no biases"):
        call(given.x)
    given.mlp.requires_grad_(False)
    assert ratio(given._replace(x=given.x.detach(), dy=None), call) <= 2


def test_the_kernels_read_the_weights_where_they_are(kernels: Kernels) -> None:
    given = case("inference")
    before = given.mlp.gate_proj.weight, given.mlp.up_proj.weight
    call = Quack().bind(given.mlp)
    with torch.no_grad():
        call(given.x)
        _, (_, weights), _ = kernels.calls[-1]
        assert (given.mlp.gate_proj.weight, given.mlp.up_proj.weight) == before
        assert weights.data_ptr() == before[0].data_ptr()
        assert weights.stride() == (1, 32)
        before[1].mul_(2)  # an update in place is seen, and nothing is copied again
        expected = Eager().bind(given.mlp)(given.x)
        torch.testing.assert_close(call(given.x), expected, rtol=2e-2, atol=2e-2)
        assert kernels.calls[-1][1][1].data_ptr() == before[0].data_ptr()


def test_backward_keeps_x_gate_and_up_alone(kernels: Kernels) -> None:
    given = case()
    tokens, item = 6, 2
    assert saved_bytes(Quack().bind(given.mlp), given) == tokens * (32 + 2 * 48) * item


@pytest.mark.parametrize("wanted", ["x", "gate_proj", "up_proj", "down_proj"])
def test_only_the_gradients_that_are_wanted_are_computed(kernels: Kernels, wanted: str) -> None:
    given = case()
    given.mlp.requires_grad_(False)
    x = given.x.detach().requires_grad_(wanted == "x")
    leaf = x if wanted == "x" else getattr(given.mlp, wanted).weight.requires_grad_()
    (got,) = torch.autograd.grad(Quack().bind(given.mlp)(x), leaf, given.dy)
    (expected,) = torch.autograd.grad(Eager().bind(given.mlp)(x), leaf, given.dy)
    torch.testing.assert_close(got, expected, rtol=5e-2, atol=5e-2)
    assert [name for name, _, _ in kernels.calls].count("gemm") == (wanted != "down_proj")


def test_an_expanded_gradient_is_copied_not_misread(kernels: Kernels) -> None:
    given = case()
    (got,) = torch.autograd.grad(Quack().bind(given.mlp)(given.x).sum(), given.x)
    (expected,) = torch.autograd.grad(Eager().bind(given.mlp)(given.x).sum(), given.x)
    torch.testing.assert_close(got, expected, rtol=5e-2, atol=5e-2)
    dy = kernels.calls[1][1][0]
    assert dy.stride() == (32, 1)


def cube_too(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return call(x).sum() + (x**3).sum()


@pytest.mark.usefixtures("kernels")
@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True")
@pytest.mark.parametrize("loss", [lambda call, x: call(x).sum(), cube_too], ids=["alone", "another term reaches x"])
def test_double_backward_is_refused_by_name(loss: Callable[..., Tensor]) -> None:
    given = case()
    call = Quack().bind(given.mlp)
    with pytest.raises(BackendUnavailableError, match=r"'quack'.*create_graph=True"):
        torch.autograd.grad(loss(call, given.x), given.x, create_graph=True)
    with pytest.raises(BackendUnavailableError, match=r"'quack'.*create_graph=True"):
        loss(call, given.x).backward(create_graph=True)


def wide(x: Tensor, columns: int) -> Tensor:
    return torch.cat((x, x.new_zeros(*x.shape[:-1], columns)), dim=-1)[..., : x.shape[-1]]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x: x.flatten(0, 1).T.contiguous().T, "stride 6; quack reads stride 1"),
        (lambda x: wide(x, 3).flatten(0, 1), "35 elements apart"),
        (lambda x: wide(x, 8).flatten(0, 1)[:, 1:].contiguous().flatten()[3:35].view(1, 32), "start at address 0x"),
        (lambda x: x.float(), "x is torch.float32 on cpu and the weights are torch.bfloat16 on cpu"),
        (lambda x: x.to("meta"), "on meta and the weights are torch.bfloat16 on cpu"),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_inputs_that_quack_would_not_run_are_refused(change: Callable[[Tensor], Tensor], text: str, grad: bool) -> None:
    given = case("inference")
    call = Quack().bind(given.mlp)
    with torch.set_grad_enabled(grad), pytest.raises(BackendUnavailableError, match=text):
        call(change(given.x.detach()))


@pytest.mark.usefixtures("kernels")
def test_rows_of_a_wider_tensor_are_read_as_they_are() -> None:
    given = case("inference")
    call = Quack().bind(given.mlp)
    with torch.no_grad():
        assert torch.equal(call(wide(given.x, 8)), call(given.x))


@pytest.mark.usefixtures("kernels")
def test_weights_moved_apart_and_late_hooks_are_refused() -> None:
    given = case("inference")
    call = Quack().bind(given.mlp)
    given.mlp.up_proj.weight.data = given.mlp.up_proj.weight.detach().clone()
    for grad in (True, False):
        with torch.set_grad_enabled(grad), pytest.raises(BackendUnavailableError, match=r"set_backend\('quack'\)"):
            call(given.x)
    given.mlp.down_proj.register_forward_hook(lambda *_: None)
    with pytest.raises(BackendUnavailableError, match="would bypass"):
        call(given.x)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_global_hooks_are_refused_while_they_are_there(kind: str) -> None:
    given = case("inference")
    call = Quack().bind(given.mlp)
    expected = call(given.x)
    hook = getattr(torch.nn.modules.module, f"register_module_{kind}_hook")(lambda *_: None)
    try:
        for refused in (lambda: call(given.x), lambda: Quack().bind(given.mlp)):
            with pytest.raises(BackendUnavailableError, match=r"has a global .*hook, which this backend"):
                refused()
    finally:
        hook.remove()
    assert torch.equal(call(given.x), expected)


@pytest.mark.usefixtures("kernels")
def test_autocast_computes_in_its_dtype() -> None:
    given = case("inference", dtype="float16")
    call = Quack().bind(given.mlp)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y = call(given.x)
        expected = Eager().bind(given.mlp)(given.x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=5e-2, atol=5e-2)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.complex64, torch.bool])
@pytest.mark.parametrize("autocast", [True, False])
def test_what_autocast_leaves_alone_is_refused_as_eager_does(autocast: bool, dtype: torch.dtype, grad: bool) -> None:
    given = case("inference")
    x, call = torch.ones(2, 32, dtype=dtype), Quack().bind(given.mlp)
    with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        with pytest.raises(RuntimeError, match="dtype"):
            Eager().bind(given.mlp)(x)
        with pytest.raises(BackendUnavailableError, match=f"x is {dtype} on cpu and the weights are torch.bfloat16"):
            call(x)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_weight_of_another_dtype_is_refused_as_eager_does(name: str, grad: bool) -> None:
    given = case("inference", bias=True)
    call = Quack().bind(given.mlp.requires_grad_(False))
    part = getattr(given.mlp.down_proj, name)
    part.data = part.data.half()
    with torch.set_grad_enabled(grad):
        with pytest.raises(RuntimeError, match="dtype"):
            Eager().bind(given.mlp)(given.x)
        with pytest.raises(BackendUnavailableError, match=r"x is torch.bfloat16 .* weights are .*torch.float16"):
            call(given.x)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_autocast_casts_is_cast(dtype: torch.dtype) -> None:
    given = case("inference")
    x, call = torch.randn(2, 32).to(dtype), Quack().bind(given.mlp)
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        got, expected = call(x), Eager().bind(given.mlp)(x)
    assert got.dtype == expected.dtype == torch.float16
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("shape", [(1, 32), (1, 1, 32), (0, 32)])
def test_one_row_is_read_whatever_its_stride_says(kernels: Kernels, shape: tuple[int, ...], mode: str) -> None:
    """PyTorch calls it contiguous, and clones keep its strides."""
    given = case(mode)
    x = torch.randn(shape).bfloat16()
    odd = x.as_strided(shape, (*(1 for _ in shape[1:]), 1)).requires_grad_(mode == "training")
    assert odd.is_contiguous()
    call = Quack().bind(given.mlp)
    expected = call(x)
    got = call(odd)
    assert torch.equal(got, expected)
    if mode == "training":
        dy = torch.ones_like(got)
        torch.autograd.grad(got, odd, dy.as_strided(shape, odd.stride()))
    for _, operands, _ in kernels.calls:
        for one in operands:
            assert 1 in one.stride()
            assert all(stride == 1 or stride % 8 == 0 for stride in one.stride())


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("keep", [False, True])
def test_the_shapes_that_a_compiler_is_told_are_the_real_ones(keep: bool) -> None:
    given = case()
    Quack().bind(given.mlp)
    mlp, x, dy = given.mlp, given.x.detach(), given.dy
    weights = (mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
    preact = x.new_zeros(6, 96)
    for op, arguments in (
        (adapter._mlp_op, (x, *weights, None, None, None, "geglu", True, keep, "")),
        (adapter._gradients_op, (dy, x, preact, *weights, "geglu", True, keep, not keep, keep)),
    ):
        with torch.no_grad():
            real = op(*arguments)
        mode = FakeTensorMode()
        stand_ins = [mode.from_tensor(one.detach()) if isinstance(one, Tensor) else one for one in arguments]
        with mode:
            fake = op(*stand_ins)
        for one, other in zip(real, fake, strict=True):
            assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_compiler_gets_one_operator(mode: str) -> None:
    given = case(mode)
    call = Quack().bind(given.mlp)
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for got, expected in zip(step(compiled, given)(), step(call, given)(), strict=True):
        assert torch.equal(got, expected)


# ---- with the package itself -----------------------------------------------------------------------------------------


@pytest.fixture
def real() -> Any:
    try:
        return importlib.import_module("quack.gemm_interface")
    except Exception as error:
        pytest.skip(f"quack.gemm_interface cannot be imported: {type(error).__name__}: {error}")


def test_the_stand_ins_do_what_the_package_does(real: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that the adapter makes fits the real signature, and gives what quack's own references give."""
    stand_ins, given = Kernels(), case()
    monkeypatch.setattr(adapter, "_kernels", lambda: stand_ins)
    step(Quack().bind(given.mlp), given)()
    calls, mm = list(stand_ins.calls), torch.mm
    # Its references ask for an output dtype, which PyTorch's product on the CPU does not take.
    monkeypatch.setattr(torch, "mm", lambda a, b, *, out_dtype, out: mm(a, b).to(out_dtype))
    assert [name for name, _, _ in calls] == ["gemm_gated", "gemm_dgated", "gemm", "gemm"]
    for name, operands, options in calls:
        inspect.signature(getattr(real, name)).bind(*operands, **options)
        got = getattr(stand_ins, name)(*operands, **options)
        plain = {key: value for key, value in options.items() if key not in ("dynamic_scheduler", "tuned")}
        expected = getattr(real, f"{name}_ref")(*(operand.clone() for operand in operands), **plain)
        torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_package_means_the_same_by_its_activations(real: Any, activation: Activation) -> None:
    gate, up = torch.randn(2, 64)
    expected = activation_function(activation)(gate) * up
    torch.testing.assert_close(real.gated_to_pytorch_fn_map[ACTIVATIONS[activation]](gate, up), expected)
