"""act_mul under autograd, torch.func, autocast, checkpointing, torch.compile and export."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from functorch.compile import make_boxed_func
from mlpfusion_kernels import ACTIVATIONS, act_mul, act_mul_reference
from mlpfusion_kernels.elementwise.autograd import NAMESPACE, _act_mul_direct, _act_mul_op
from support import rings
from torch._dynamo.backends.common import aot_autograd
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from mlpfusion.spec import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[[torch.Tensor, torch.Tensor, str], torch.Tensor]

# The operator is what a CPU tensor takes; the direct way is what a plain CUDA tensor takes.
WAYS = pytest.mark.parametrize("function", [act_mul, _act_mul_direct])


def operands(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    gate, up = (torch.randn(shape, generator=generator).to(dtype).requires_grad_() for _ in range(2))
    return gate, up


def in_fp64(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def assert_near(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance)


@WAYS
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients(function: Function, activation: str) -> None:
    gate, up = operands(5, 7)
    exact_gate, exact_up = exact = in_fp64(gate, up)
    got = torch.autograd.grad(function(gate, up, activation).square().sum(), (gate, up))
    assert_near(got, torch.autograd.grad(act_mul_reference(exact_gate, exact_up, activation).square().sum(), exact))


@WAYS
def test_the_gradient_of_a_sum_arrives_expanded(function: Function) -> None:
    gate, up = operands(5, 7)
    exact_gate, exact_up = exact = in_fp64(gate, up)
    got = torch.autograd.grad(function(gate, up, "gelu").sum(), (gate, up))
    assert_near(got, torch.autograd.grad(act_mul_reference(exact_gate, exact_up, "gelu").sum(), exact))


@WAYS
def test_only_wanted_gradients_are_computed(function: Function) -> None:
    gate, up = operands(5, 7)
    both = torch.autograd.grad(function(gate, up, "silu").sum(), (gate, up))
    function(gate, up.detach(), "silu").sum().backward()
    assert torch.equal(gate.grad, both[0])  # type: ignore[arg-type]
    assert up.grad is None
    gate.grad = None
    function(gate.detach(), up, "silu").sum().backward()
    assert torch.equal(up.grad, both[1])  # type: ignore[arg-type]
    assert gate.grad is None


@WAYS
@pytest.mark.parametrize("activation", [row.name for row in TABLE if row.smoothness >= 1])
def test_second_and_third_order(function: Function, activation: str) -> None:
    """Another term of the loss reaches the inputs too: there a detached first gradient would be silently wrong."""

    def derivatives(form: Function, gate: torch.Tensor, up: torch.Tensor) -> list[torch.Tensor]:
        loss = form(gate, up, activation).square().sum() + (gate**3 * up).sum()
        first = torch.autograd.grad(loss, (gate, up), create_graph=True)
        second = torch.autograd.grad((first[0].sin() + first[1] ** 2).sum() + gate.sum(), (gate, up), create_graph=True)
        third = torch.autograd.grad((second[0] * second[1]).sum(), (gate, up))
        return [*first, *second, *third]

    gate, up = operands(3, 4)
    got, want = derivatives(function, gate, up), derivatives(act_mul_reference, *in_fp64(gate, up))
    for one, other in zip(got, want, strict=True):
        assert float((one.double() - other).detach().abs().max() / other.detach().abs().max()) < 1e-5


@WAYS
def test_gradient_penalty_by_backward(function: Function) -> None:
    gate, up = operands(3, 4)
    exact = in_fp64(gate, up)
    for form, (g, u) in ((function, (gate, up)), (act_mul_reference, exact)):
        y = form(g, u, "silu").sum()
        (dgate,) = torch.autograd.grad(y, g, create_graph=True)
        (y + dgate.square().sum()).backward()
    assert_near((gate.grad, up.grad), [tensor.grad for tensor in exact])


@WAYS
def test_backward_twice_leaves_the_operands_alone(function: Function) -> None:
    gate, up = operands(5, 7)
    before, versions = (gate.clone(), up.clone()), (gate._version, up._version)
    y = function(gate, up, "gelu_tanh").sum()
    first = torch.autograd.grad(y, (gate, up), retain_graph=True)
    second = torch.autograd.grad(y, (gate, up))
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    assert torch.equal(gate, before[0])
    assert torch.equal(up, before[1])
    assert (gate._version, up._version) == versions


@WAYS
def test_a_changed_operand_is_noticed(function: Function) -> None:
    gate, up = (tensor * 1 for tensor in operands(5, 7))
    y = function(gate, up, "silu").sum()
    up.data.add_(0)
    up.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@WAYS
def test_an_operand_that_is_another_results_saved_output(function: Function) -> None:
    x = torch.randn(4, 6, requires_grad=True)
    exact = in_fp64(x)[0]
    for form, leaf in ((function, x), (act_mul_reference, exact)):
        e = leaf.exp()
        form(e, e, "gelu_tanh").sum().backward()
    assert_near([x.grad], [exact.grad])


@WAYS
def test_empty(function: Function) -> None:
    gate, up = operands(4, 0, 3)
    y = function(gate, up, "silu")
    y.sum().backward()
    assert y.shape == (4, 0, 3)
    assert gate.grad is not None
    assert gate.grad.shape == (4, 0, 3)


@WAYS
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_gives_the_same_bits(function: Function, reentrant: bool) -> None:
    gate, up = operands(5, 7, dtype=torch.bfloat16)
    plain = torch.autograd.grad(function(gate, up, "gelu_tanh").sum(), (gate, up))
    checkpoint(function, gate, up, "gelu_tanh", use_reentrant=reentrant).sum().backward()
    assert torch.equal(gate.grad, plain[0])  # type: ignore[arg-type]
    assert torch.equal(up.grad, plain[1])  # type: ignore[arg-type]


@WAYS
@pytest.mark.parametrize("autocast", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(function: Function, autocast: torch.dtype) -> None:
    """Like F.gelu and mul, it is on no autocast list: the result has the promoted dtype of what comes in."""
    gate, up = operands(5, 7)
    mixed = gate.detach().to(autocast).requires_grad_()
    with torch.autocast("cpu", dtype=autocast):
        y = function(mixed, up, "silu")
        assert y.dtype is (torch.nn.functional.silu(mixed) * up).dtype
    y.sum().backward()
    assert mixed.grad is not None
    assert up.grad is not None
    assert (mixed.grad.dtype, up.grad.dtype) == (autocast, torch.float32)


@WAYS
def test_inference_mode_and_no_grad(function: Function) -> None:
    gate, up = operands(5, 7)
    want = function(gate, up, "silu").detach()
    with torch.no_grad():
        y = function(gate, up, "silu")
        assert not y.requires_grad
        assert torch.equal(y, want)
    with torch.inference_mode():
        y = function(gate, up, "silu")
        assert y.is_inference()
        assert torch.equal(y, want)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = torch.nn.Linear(6, 8), torch.nn.Linear(6, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return act_mul(self.gate(x), self.up(x), "gelu_tanh")


def test_deepcopy() -> None:
    block, x = Block(), torch.randn(3, 6)
    twin = copy.deepcopy(block)
    assert torch.equal(block(x), twin(x))
    assert list(block.state_dict()) == list(twin.state_dict())


@pytest.mark.parametrize("dynamic", rings.only_first([False, True]))
def test_compiled_without_graph_breaks_gives_the_same_bits(dynamic: bool) -> None:
    compiled = torch.compile(lambda g, u: act_mul(g, u, "gelu_tanh"), fullgraph=True, dynamic=dynamic)
    for rows in (3, 5):
        gate, up = operands(rows, 7, dtype=torch.bfloat16)
        with torch.no_grad():
            assert torch.equal(compiled(gate, up), act_mul(gate, up, "gelu_tanh"))
        got = torch.autograd.grad(compiled(gate, up).sum(), (gate, up))
        want = torch.autograd.grad(act_mul(gate, up, "gelu_tanh").sum(), (gate, up))
        assert all(torch.equal(*pair) for pair in zip(got, want, strict=True))


def test_a_compiled_graph_holds_one_operator_each_way() -> None:
    graphs: list[list[str]] = []

    def keep(graph: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    gate, up = operands(3, 8)
    torch.compile(lambda g, u: act_mul(g, u, "gelu"), fullgraph=True, backend=backend)(gate, up).sum().backward()
    forward, backward = graphs
    assert forward == [f"{NAMESPACE}.act_mul.default"]
    assert [name for name in backward if "getitem" not in name] == [f"{NAMESPACE}.act_mul_backward.default"]


@pytest.mark.full  # another compilation
def test_compiled_packed_halves() -> None:
    packed = torch.randn(4, 20, requires_grad=True)

    def halves(x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, dim=-1)
        return act_mul(gate, up, "silu")

    got, want = torch.compile(halves, fullgraph=True)(packed), halves(packed)
    assert torch.equal(got, want)
    assert torch.equal(torch.autograd.grad(got.sum(), packed)[0], torch.autograd.grad(want.sum(), packed)[0])


@pytest.mark.parametrize("packed", [False, True])
def test_operators_pass_torchs_own_check(packed: bool) -> None:
    gate, up = operands(3, 8)
    if packed:
        gate, up = torch.randn(3, 16, requires_grad=True).chunk(2, -1)
    torch.library.opcheck(_act_mul_op, (gate, up, "gelu", ""))
    backward = getattr(torch.ops, NAMESPACE).act_mul_backward.default
    for wanted in ((True, True), (True, False), (False, True)):
        torch.library.opcheck(backward, (gate.detach(), gate.detach(), up.detach(), "gelu", *wanted))


def test_export() -> None:
    rows = torch.export.Dim("rows")
    program = torch.export.export(Block(), (torch.randn(3, 6),), dynamic_shapes=({0: rows},))
    assert program.module()(torch.randn(5, 6)).shape == (5, 8)
    assert any("act_mul" in str(node.target) for node in program.graph.nodes)


def test_torch_func_transforms() -> None:
    gate, up = (tensor.detach() for tensor in operands(4, 6))
    ways = []
    for form in (act_mul, act_mul_reference):

        def loss(g: torch.Tensor, u: torch.Tensor, form: Function = form) -> torch.Tensor:
            return form(g, u, "gelu").sum()

        def value(g: torch.Tensor, form: Function = form) -> torch.Tensor:
            return form(g, up, "gelu")

        ways.append(
            [
                torch.func.vmap(loss)(gate, up),
                torch.func.vmap(loss, in_dims=(1, None))(gate, up[:, 0]),
                torch.func.grad(loss)(gate, up),
                torch.func.vmap(torch.func.grad(loss, argnums=1))(gate, up),
                torch.func.jvp(value, (gate,), (up,))[1],
                torch.func.jacrev(value)(gate),
                torch.func.hessian(loss)(gate, up),
            ]
        )
    assert_near(*ways)


def test_forward_mode_has_its_tangents() -> None:
    gate, up = (tensor.detach() for tensor in operands(4, 6))
    tangents = []
    for form in (act_mul, act_mul_reference):
        with forward_ad.dual_level():
            y = form(forward_ad.make_dual(gate, up), forward_ad.make_dual(up, gate), "silu")
            tangents.append(forward_ad.unpack_dual(y).tangent)
    assert_near(tangents[:1], tangents[1:])


def test_forward_mode_is_refused_where_it_would_be_lost() -> None:
    gate, up = (tensor.detach() for tensor in operands(4, 6))
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match=f"{NAMESPACE}::act_mul has no forward-mode"):
        _act_mul_op(forward_ad.make_dual(gate, up), up, "silu", "")

    def tangent(x: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(lambda g: act_mul(g, up, "silu"), (x,), (x,))[1]

    with pytest.raises(Exception, match=f"{NAMESPACE}::act_mul has no forward-mode"):
        torch.compile(tangent, fullgraph=True)(gate)


def test_a_compiled_graph_refuses_a_second_derivative() -> None:
    gate, up = operands(4, 6)
    y = torch.compile(lambda g, u: act_mul(g, u, "silu"), fullgraph=True)(gate, up)
    (dgate,) = torch.autograd.grad(y.sum(), gate, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(dgate.sum(), gate)
