"""gated_mlp's values, layouts, operators and refusals, in Triton's interpreter."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlpfusion_kernels import ACTIVATIONS, Weights, act_mul, gated_mlp
from mlpfusion_kernels.gate_up import autograd
from mlpfusion_kernels.gate_up.autograd import _mlp_backward_op, _mlp_middle_op, _mlp_op
from support import rings
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn import functional

from mlpfusion.backends.eager import Eager
from mlpfusion.reference import Case, judge, make_case, oracle, step
from mlpfusion.spec import MLPSpec, Workload

if TYPE_CHECKING:
    from mlpfusion.module import GatedMLP

CPU = torch.device("cpu")
D, H = 16, 32
NAMES = ("x", "gate_weight", "up_weight", "down_weight", "gate_bias", "up_bias", "down_bias")


def weights_of(mlp: GatedMLP) -> Weights:
    gate, up, down = mlp.gate_proj, mlp.up_proj, mlp.down_proj
    return Weights(gate.weight, up.weight, down.weight, gate.bias, up.bias, down.bias)


def judged(given_: Case, **options: Any) -> float:
    """The worst error against fp64 over eager's own, over what is allowed: right up to 1."""
    activation = given_.mlp.spec.activation
    mine = step(lambda x: gated_mlp(x, weights_of(given_.mlp), activation, **options), given_)()
    verdict = judge(mine, step(Eager().bind(given_.mlp), given_)(), oracle(given_))
    return verdict.ratio / verdict.limit


def operands(
    *shape: int, dtype: torch.dtype = torch.float32, bias: bool = True, seed: int = 0
) -> tuple[Tensor, Weights]:
    """x [*shape, D] and weights for it."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator)

    matrices = [normal(H, D) * D**-0.5, normal(H, D) * D**-0.5, normal(D, H) * H**-0.5]
    biases = [normal(n) * 0.1 if bias else None for n in (H, H, D)]
    return normal(*shape, D).to(dtype), Weights(*(None if w is None else w.to(dtype) for w in (*matrices, *biases)))


def fingerprint(tensor: Tensor) -> tuple[str, int]:
    whole = tensor.detach().as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
    return hashlib.sha256(whole.numpy().tobytes()).hexdigest(), tensor._version


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_and_gradients_are_as_near_to_fp64_as_eager_s(activation: str, dtype: str) -> None:
    """10240 elements and more of each matrix, so that twice eager's error is the limit for them."""
    spec = MLPSpec(
        hidden_size=64, intermediate_size=160, activation=activation, dtype=dtype, bias=activation != "gelu_tanh"
    )
    for mode in ("training", "inference") if activation == "silu" else ("training",):
        given_ = make_case(Workload(spec=spec, batch=7, seq=23, mode=mode), CPU, seed=0)
        assert judged(given_) <= 1


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_product_is_act_mul_of_the_rounded_preactivations(activation: str) -> None:
    x, weights = operands(37, dtype=torch.float16)
    y, gate, up = _mlp_op(x, *weights, activation, True, "")
    assert torch.equal(y, functional.linear(act_mul(gate, up, activation), weights.down, weights.down_bias))
    torch.testing.assert_close(gate, functional.linear(x, weights.gate, weights.gate_bias))
    assert torch.equal(gated_mlp(x, weights, activation), y)


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (1,), (), (2, 3, 5), (1, 1, 1), (65,)])
def test_any_number_of_tokens_and_dimensions(shape: tuple[int, ...]) -> None:
    x, weights = operands(*shape)
    x.requires_grad_()
    y = gated_mlp(x, weights, "silu")
    assert y.shape == x.shape
    assert y.is_contiguous()
    rows = x.detach().reshape(-1, D)
    assert torch.equal(y.reshape(-1, D), gated_mlp(rows, weights, "silu"))
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


@st.composite
def strided(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Two [..., D] of one shape, each a view of larger memory: dimensions in any order, with steps, gaps, offset."""
    shape = (*draw(st.lists(st.integers(1, 3), max_size=2)), D)

    def view() -> Tensor:
        apart = draw(st.sampled_from([1, 1, 2]))
        strides = [0] * len(shape)
        for axis in draw(st.permutations(range(len(shape)))):
            strides[axis] = draw(st.sampled_from([apart, apart, apart, 0]))
            apart = apart * shape[axis] + draw(st.sampled_from([0, 0, 3, 8]))
        offset = draw(st.integers(0, 9))
        extent = offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        return torch.linspace(-2, 2, extent + 5).as_strided(shape, strides, offset)

    return view(), view()


@settings(max_examples=rings.examples(20))
@given(strided())
def test_any_strides_of_x_and_of_the_gradient(pair: tuple[Tensor, Tensor]) -> None:
    """What lies anyhow gives the bits of its contiguous copy, and stays as it is."""
    x, dy = pair
    _, weights = operands(1)
    before = fingerprint(x), fingerprint(dy)

    def gradients(x: Tensor, dy: Tensor) -> list[Tensor]:
        leaves = [x.requires_grad_(), *(w.detach().requires_grad_() for w in weights if w is not None)]
        y = gated_mlp(x, Weights(*leaves[1:]), "gelu_tanh")
        return [y.detach(), *torch.autograd.grad(y, leaves, dy)]

    got, want = gradients(x.detach(), dy), gradients(x.detach().clone().contiguous(), dy.contiguous())
    assert torch.equal(got[0], want[0])
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)  # PyTorch's own products may add in another order
    assert (fingerprint(x), fingerprint(dy)) == before


def test_nothing_is_written_in_place() -> None:
    """Inputs, weights and what is saved keep their bytes and versions through two backwards."""
    x, weights = operands(20)
    leaves = [x.requires_grad_(), *(w.requires_grad_() for w in weights if w is not None)]
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = gated_mlp(x, weights, "gelu")
    watched = [*leaves, *saved, y]
    before = [fingerprint(tensor) for tensor in watched]
    dy = torch.randn(20, D)
    first = torch.autograd.grad(y, leaves, dy, retain_graph=True)
    second = torch.autograd.grad(y, leaves, dy)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    assert [fingerprint(tensor) for tensor in watched] == before
    assert len(saved) == 9


# ---- operators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_the_forward_operator_passes_torchs_own_check(keep: bool, bias: bool) -> None:
    x, weights = operands(3, 2, bias=bias)
    leaves = Weights(*(None if w is None else w.requires_grad_() for w in weights))
    torch.library.opcheck(_mlp_op, (x.requires_grad_(), *leaves, "silu", keep, ""))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("wanted", [[True] * 7, [False, True, False, True, False, True, False], [True] + [False] * 6])
def test_the_backward_operator_passes_torchs_own_check(kept: bool, bias: bool, wanted: list[bool]) -> None:
    x, weights = operands(3, 2, bias=bias)
    _, gate, up = _mlp_op(x, *weights, "silu", True, "")
    preacts = (gate, up) if kept else (None, None)
    asked = [want and operand is not None for want, operand in zip(wanted, (x, *weights), strict=True)]
    torch.library.opcheck(_mlp_backward_op, (torch.randn(3, 2, D), x, *preacts, *weights, "silu", asked))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_the_operator_of_the_middle_passes_torchs_own_check_and_gives_what_is_new(kept: bool, bias: bool) -> None:
    x, weights = operands(3, 2, bias=bias)
    _, gate, up = _mlp_op(x, *weights, "silu", True, "")
    given = (torch.randn(6, D), x, *((gate, up) if kept else (None, None)), *weights, "silu")
    torch.library.opcheck(_mlp_middle_op, given)
    dgate_up, product = _mlp_middle_op(*given)
    assert (dgate_up.shape, product.shape) == ((6, 2 * H), (6, H))
    assert torch.equal(product, act_mul(gate, up, "silu"))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (), (0,)])
def test_the_shapes_that_a_compiler_is_told_are_the_real_ones(shape: tuple[int, ...], keep: bool) -> None:
    x, weights = operands(*shape)
    real = _mlp_op(x, *weights, "relu", keep, "")
    dy = torch.randn(*shape, D)
    both = (real[1], real[2]) if keep else (None, None)
    backward = _mlp_backward_op(dy, x, *both, *weights, "relu", [True] * 7)
    mode = FakeTensorMode()
    fake = lambda tensor: None if tensor is None else mode.from_tensor(tensor)  # noqa: E731
    with mode:
        stand_ins = [fake(tensor) for tensor in (x, *weights)]
        forward_shapes = _mlp_op(*stand_ins, "relu", keep, "")
        backward_shapes = _mlp_backward_op(
            fake(dy), stand_ins[0], *(fake(each) for each in both), *stand_ins[1:], "relu", [True] * 7
        )
    for one, other in zip((*real, *backward), (*forward_shapes, *backward_shapes), strict=True):
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


def test_a_meta_tensor_has_the_shape_of_the_result() -> None:
    x, weights = operands(2, 3)
    y = gated_mlp(x.to("meta"), Weights(*(None if w is None else w.to("meta") for w in weights)), "silu")
    assert (y.shape, y.dtype, y.device.type) == (x.shape, x.dtype, "meta")


def test_the_preactivations_that_the_operator_returns_have_no_gradient() -> None:
    x, weights = operands(3)
    _, gate, up = _mlp_op(x.requires_grad_(), *weights, "silu", True, "")
    assert not gate.requires_grad
    assert not up.requires_grad


def test_results_of_the_backward_operator_share_no_memory() -> None:
    x, weights = operands(2, 3)
    found = _mlp_backward_op(torch.randn(2, 3, D), x, None, None, *weights, "silu", [True] * 7)
    storages = [each.untyped_storage() for each in found]
    assert len({storage.data_ptr() for storage in storages}) == len(found) == 5  # of gate and up as one
    assert [storage.nbytes() for storage in storages] == [each.nbytes for each in found]


# ---- refusals --------------------------------------------------------------------------------------------------------


def changed(weights: Weights, **changes: Any) -> Weights:
    return weights._replace(**{name: change(getattr(weights, name)) for name, change in changes.items()})


BAD_WEIGHTS = [
    ({"gate": lambda w: w[:, :8]}, ValueError, "multiples of 16, got D = 8 and H = 32"),
    ({"gate": lambda w: w[:24]}, ValueError, "multiples of 16, got D = 16 and H = 24"),
    ({"gate": lambda w: w[:, :0]}, ValueError, "positive multiples of 16, got D = 0 and H = 32"),
    ({"gate": lambda w: w[:0]}, ValueError, "positive multiples of 16, got D = 16 and H = 0"),
    ({"gate": lambda w: w[0]}, ValueError, "gate_weight must be [H, D], got (16,)"),
    ({"gate": lambda w: w[None]}, ValueError, "gate_weight must be [H, D], got (1, 32, 16)"),
    ({"up": lambda w: w[:16]}, ValueError, "up_weight must be [32, 16], got [16, 16]"),
    ({"up": lambda w: w.T}, ValueError, "up_weight must be [32, 16], got [16, 32]"),
    ({"down": lambda w: w.T}, ValueError, "down_weight must be [16, 32], got [32, 16]"),
    ({"gate_bias": lambda b: b[:8]}, ValueError, "gate_bias must be [32], got [8]"),
    ({"down_bias": lambda b: b[None]}, ValueError, "down_bias must be [16], got [1, 16]"),
    ({"gate_bias": lambda _: None}, ValueError, "gate_bias and up_bias must both be there or both be None"),
    ({"up": Tensor.half}, TypeError, "up_weight must have x's dtype torch.float32, got torch.float16"),
    ({"down_bias": Tensor.double}, TypeError, "down_bias must have x's dtype torch.float32, got torch.float64"),
    ({"down": lambda w: w.to("meta")}, ValueError, "down_weight must be on x's device cpu, got meta"),
    ({"up": lambda w: w.T.contiguous().T}, ValueError, "up_weight must have rows of adjacent elements"),
    ({"down": lambda w: w.new_empty(D, H + 1)[:, :H]}, ValueError, "down_weight must have rows of adjacent elements"),
    ({"gate": lambda w: w.new_empty(H * D + 1)[1:].view(H, D)}, ValueError, "gate_weight must start at a multiple"),
]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("changes", "error", "text"), BAD_WEIGHTS)
def test_bad_weights_are_named(changes: dict[str, Any], error: type[Exception], text: str, grad: bool) -> None:
    x, weights = operands(3)
    with pytest.raises(error) as raised:
        gated_mlp(x.requires_grad_(grad), changed(weights, **changes), "silu")
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (Tensor.double, TypeError, "x must be float32, float16 or bfloat16, got torch.float64"),
        (Tensor.int, TypeError, "x must be float32, float16 or bfloat16, got torch.int32"),
        (lambda x: x[:, :8], ValueError, "x must be [..., 16] for weights of 16 columns, got (3, 8)"),
        (lambda x: x[0, 0], ValueError, "x must be [..., 16] for weights of 16 columns, got ()"),
        (Tensor.half, TypeError, "gate_weight must have x's dtype torch.float16, got torch.float32"),
        (lambda x: x.to("meta"), ValueError, "gate_weight must be on x's device meta, got cpu"),
    ],
)
def test_a_bad_x_is_named(change: Any, error: type[Exception], text: str) -> None:
    x, weights = operands(3)
    with pytest.raises(error) as raised:
        gated_mlp(change(x), weights, "silu")
    assert text in str(raised.value)


@pytest.mark.parametrize("device", ["xpu", "mps"])
def test_another_kind_of_device_is_named(device: str) -> None:
    x, weights = operands(3)
    with FakeTensorMode():
        there = [torch.empty(each.shape, device=device) for each in (x, *weights) if each is not None]
        with pytest.raises(ValueError, match=f"on a CUDA or ROCm GPU or, in Triton's interpreter, .* got {device}"):
            gated_mlp(there[0], Weights(*there[1:]), "silu")


def test_an_unknown_activation_is_named() -> None:
    with pytest.raises(ValueError, match=f"unknown activation 'swish'; known: {', '.join(ACTIVATIONS)}"):
        gated_mlp(*operands(3), "swish")


def test_tied_weights_are_refused() -> None:
    x, weights = operands(3)
    with pytest.raises(ValueError, match="gate_weight and up_weight share one memory"):
        gated_mlp(x, weights._replace(up=weights.gate), "silu")


def test_a_cpu_tensor_outside_the_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlpfusion_kernels.launching import cached

    monkeypatch.setattr(cached, "is_interpreted", lambda _: False)
    with pytest.raises(RuntimeError, match="cannot run on a CPU tensor; move it to a GPU, or set TRITON_INTERPRET=1"):
        gated_mlp(*operands(3), "silu")


NO_TRANSFORMS = "no derivative for torch.func transforms or forward-mode"


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: torch.func.grad(lambda x: f(x).sum())(x),
        torch.func.vjp,
        lambda f, x: torch.func.vmap(f)(x),
        lambda f, x: torch.func.jvp(f, (x,), (x,)),
        lambda f, x: torch.func.jacrev(f)(x),
        lambda f, x: torch.func.jacfwd(f)(x),
        lambda f, x: torch.func.hessian(lambda x: f(x).sum())(x),
        lambda f, x: torch.func.functionalize(f)(x),
    ],
    ids=["grad", "vjp", "vmap", "jvp", "jacrev", "jacfwd", "hessian", "functionalize"],
)
def test_function_transforms_are_refused(transform: Any) -> None:
    x, weights = operands(3)
    with pytest.raises(RuntimeError, match=NO_TRANSFORMS):
        transform(lambda x: gated_mlp(x, weights, "silu"), x)


def test_forward_mode_is_refused() -> None:
    x, weights = operands(3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        for call in (gated_mlp, lambda x, weights, activation: _mlp_op(x, *weights, activation, False, "")):
            with pytest.raises(RuntimeError, match=NO_TRANSFORMS):
                call(dual, weights, "silu")


def test_the_names_in_messages_are_those_of_the_operators() -> None:
    arguments = [each.name for each in _mlp_op._opoverload._schema.arguments]
    assert (*arguments[:7],) == NAMES == autograd._NAMES


def test_forward_mode_inside_compiled_code_is_refused() -> None:
    x, weights = operands(3)
    torch.compiler.reset()
    pushed = torch.compile(
        lambda x: torch.func.jvp(lambda x: gated_mlp(x, weights, "silu"), (x,), (x,)), backend="aot_eager"
    )
    with pytest.raises(RuntimeError, match=NO_TRANSFORMS):
        pushed(x)
