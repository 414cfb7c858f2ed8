"""gated_mlp under autograd, autocast, checkpointing and torch.compile, in Triton's interpreter."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
from functorch.compile import make_boxed_func
from mlpfusion_kernels import Weights, gated_mlp
from mlpfusion_kernels.elementwise.autograd import NAMESPACE
from mlpfusion_kernels.gate_up import autograd
from torch import Tensor
from torch._dynamo import compiled_autograd
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.utils import fresh_cache
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from mlpfusion.measure.memory import saved_bytes
from mlpfusion.reference import make_case
from mlpfusion.spec import MLPSpec, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

D, H, M = 16, 32, 20
SECOND = "gated_mlp has no second derivative"


@pytest.fixture(params=["operator", "direct"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The operator is what a CPU tensor takes; the direct way is what a plain CUDA tensor takes."""
    if request.param == "direct":
        is_plain_cuda = autograd._is_plain_cuda

        def is_plain(x: Tensor, weights: Weights) -> bool:
            with mock.patch.object(torch.Tensor, "is_cuda", True):
                return is_plain_cuda(x, weights)

        monkeypatch.setattr(autograd, "_is_plain_cuda", is_plain)
        monkeypatch.setattr(autograd, "_mlp_op", None)
    return str(request.param)


BOTH_WAYS = pytest.mark.usefixtures("way")


def leaves_of(*, m: int = M, h: int = H, dtype: torch.dtype = torch.float32, bias: bool = True) -> list[Any]:
    """x [m, D] and the six weights, all of them leaves."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((m, D), (h, D), (h, D), (D, h), (h,), (h,), (D,))
    scales = (1, D**-0.5, D**-0.5, h**-0.5, 0.1, 0.1, 0.1)
    made = (torch.randn(shape, generator=generator) * scale for shape, scale in zip(shapes, scales, strict=True))
    leaves = [each.to(dtype).requires_grad_() for each in made]
    return leaves if bias else [*leaves[:4], None, None, None]


def run(leaves: list[Any], activation: str = "gelu_tanh", *, recompute: bool = False) -> Tensor:
    return gated_mlp(leaves[0], Weights(*leaves[1:]), activation, recompute=recompute)


def eager(leaves: list[Any]) -> Tensor:
    x, gate, up, down, gate_bias, up_bias, down_bias = leaves
    act = functional.gelu(functional.linear(x, gate, gate_bias), approximate="tanh")
    return functional.linear(act * functional.linear(x, up, up_bias), down, down_bias)


def gradients(leaves: list[Any], y: Tensor, **options: Any) -> tuple[Tensor, ...]:
    dy = torch.linspace(-1, 1, y.numel()).view_as(y).to(y.dtype)
    return torch.autograd.grad(y, [each for each in leaves if each is not None], dy, **options)


def same(got: Any, want: Any) -> bool:
    return all(torch.equal(*pair) for pair in zip(got, want, strict=True))


def test_both_ways_and_recomputing_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = leaves_of(dtype=torch.float16)
    y = run(leaves)
    want = gradients(leaves, y)
    found = [run(leaves, recompute=True)]
    found_gradients = [gradients(leaves, found[0])]
    monkeypatch.setattr(autograd, "_is_plain_cuda", lambda *_: True)
    for operator in ("_mlp_op", "_mlp_backward_op"):
        monkeypatch.setattr(autograd, operator, None)
    for recompute in (False, True):
        found.append(run(leaves, recompute=recompute))
        found_gradients.append(gradients(leaves, found[-1]))
    assert all(torch.equal(each, y) for each in found)
    assert all(same(each, want) for each in found_gradients)


@BOTH_WAYS
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_accumulate(recompute: bool) -> None:
    """Gate's and up's come from one product: what is done to one in place must not reach the other."""
    leaves = leaves_of()
    once = gradients(leaves, run(leaves))
    dy = torch.linspace(-1, 1, M * D).view(M, D)
    for _ in range(2):
        run(leaves, recompute=recompute).backward(dy)
    for leaf, first in zip(leaves, once, strict=True):
        torch.testing.assert_close(leaf.grad, 2 * first)
    leaves[1].grad.zero_()
    torch.testing.assert_close(leaves[2].grad, 2 * once[2])
    optimizer = torch.optim.SGD(leaves, lr=0.0)
    optimizer.zero_grad(set_to_none=False)
    run(leaves).backward(dy)
    optimizer.step()
    assert same([leaf.grad for leaf in leaves], once)


@BOTH_WAYS
def test_every_choice_of_wanted_gradients() -> None:
    everything = leaves_of(m=5, h=16)
    want = gradients(everything, run(everything))
    for matrices in itertools.product((False, True), repeat=4):
        chosen = (*matrices, matrices[0] != matrices[1], matrices[2], matrices[1] == matrices[3])
        leaves = [leaf.detach().requires_grad_(flag) for leaf, flag in zip(everything, chosen, strict=True)]
        y = run(leaves)
        assert y.requires_grad == any(chosen)
        if any(chosen):
            y.backward(torch.linspace(-1, 1, y.numel()).view_as(y))
        for leaf, flag, wanted in zip(leaves, chosen, want, strict=True):
            if flag:
                torch.testing.assert_close(leaf.grad, wanted)
            else:
                assert leaf.grad is None


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_x_gate_and_up_are_kept_for_backward_and_nothing_else(way: str, bias: bool, recompute: bool) -> None:
    spec = MLPSpec(hidden_size=D, intermediate_size=H, dtype="float16", bias=bias)
    case = make_case(Workload(spec=spec, batch=2, seq=10, mode="training"), torch.device("cpu"), seed=0)
    gate, up, down = case.mlp.gate_proj, case.mlp.up_proj, case.mlp.down_proj
    weights = Weights(gate.weight, up.weight, down.weight, gate.bias, up.bias, down.bias)
    kept = saved_bytes(lambda x: gated_mlp(x, weights, "silu", recompute=recompute), case)
    assert kept == 20 * (D + (0 if recompute else 2 * H)) * 2


@BOTH_WAYS
@pytest.mark.parametrize("recompute", [False, True])
def test_the_graph_can_be_kept_and_used_again(recompute: bool) -> None:
    leaves = leaves_of()
    y = run(leaves, recompute=recompute)
    assert same(gradients(leaves, y, retain_graph=True), gradients(leaves, y))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        gradients(leaves, y)


@BOTH_WAYS
@pytest.mark.parametrize("operand", range(4))
def test_a_changed_operand_is_noticed(operand: int) -> None:
    leaves = leaves_of(m=5)
    y = run(leaves)
    with torch.no_grad():
        leaves[operand].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(leaves, y)


@BOTH_WAYS
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("other", [lambda leaf: leaf.sum() * 0, lambda leaf: (leaf**3).sum()], ids=["no", "another"])
def test_a_second_derivative_is_refused_by_name(other: Callable[[Tensor], Tensor], recompute: bool) -> None:
    """Also where another term of the loss reaches the inputs: there a detached gradient would be silently wrong."""
    leaves = leaves_of(m=5)
    loss = run(leaves, recompute=recompute).square().sum() + sum(other(leaf) for leaf in leaves)
    first = torch.autograd.grad(loss, leaves, create_graph=True)
    plain = torch.autograd.grad(
        run(leaves, recompute=recompute).square().sum() + sum(other(leaf) for leaf in leaves), leaves
    )
    assert same(first, plain)
    for one, leaf in itertools.product(first, leaves):
        with pytest.raises(RuntimeError, match=SECOND):
            torch.autograd.grad(one.sum(), leaf, retain_graph=True, allow_unused=True)


@BOTH_WAYS
@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True")
@pytest.mark.parametrize("trains", [0, 1, 3, 6])
def test_a_gradient_penalty_is_refused_whatever_trains(trains: int) -> None:
    leaves = [leaf.detach() for leaf in leaves_of(m=5)]
    leaves[trains].requires_grad_()
    loss = run(leaves).square().sum()
    (first,) = torch.autograd.grad(loss, leaves[trains], create_graph=True)
    with pytest.raises(RuntimeError, match=SECOND):
        (loss + first.square().sum()).backward()


@BOTH_WAYS
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("recompute", [False, True])
def test_checkpointing_gives_the_same_bits(recompute: bool, reentrant: bool) -> None:
    leaves = leaves_of(dtype=torch.float16)
    want = gradients(leaves, run(leaves))
    y = checkpoint(lambda *leaves: run(list(leaves), recompute=recompute), *leaves, use_reentrant=reentrant)
    y.backward(torch.linspace(-1, 1, y.numel()).view_as(y).half())
    assert same([leaf.grad for leaf in leaves], want)


@BOTH_WAYS
@pytest.mark.parametrize("recompute", [False, True])
def test_autocast_computes_in_its_dtype_and_gives_gradients_in_the_leaves_own(recompute: bool) -> None:
    leaves = leaves_of()
    with torch.autocast("cpu", torch.float16):
        y, want = run(leaves, recompute=recompute), eager(leaves)
    assert y.dtype == want.dtype == torch.float16
    torch.testing.assert_close(y, want, rtol=1e-2, atol=1e-2)
    got = gradients(leaves, y)
    assert {each.dtype for each in got} == {torch.float32}
    torch.testing.assert_close(got, gradients(leaves, want), rtol=2e-2, atol=2e-2)
    halves = [leaf.detach().half().requires_grad_() for leaf in leaves]
    assert torch.equal(run(halves), y)
    assert same([each.half() for each in got], gradients(halves, run(halves)))


@BOTH_WAYS
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("within", [False, True])
def test_a_backward_under_autocast_is_as_exact_as_without(within: bool, recompute: bool) -> None:
    leaves = leaves_of()
    with torch.autocast("cpu", torch.float16, enabled=within):
        y = run(leaves, recompute=recompute)
    want = gradients(leaves, y, retain_graph=True)
    with torch.autocast("cpu", torch.float16):
        assert same(gradients(leaves, y), want)


@BOTH_WAYS
def test_no_grad_and_inference_mode_keep_nothing() -> None:
    leaves = leaves_of()
    want = run(leaves).detach()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = run(leaves)
            assert torch.equal(y, want)
            assert not y.requires_grad
    frozen = [leaf.detach() for leaf in leaves]
    assert not run(frozen).requires_grad


@BOTH_WAYS
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.complex64])
def test_autocast_leaves_alone_what_it_never_casts(dtype: torch.dtype) -> None:
    leaves = leaves_of()
    with torch.autocast("cpu", torch.float16), pytest.raises(TypeError, match=f"got {dtype}"):
        run([leaves[0].detach().to(dtype), *leaves[1:]])


@BOTH_WAYS
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("places", [(4,), (5,), (6,), (4, 5, 6)])
@pytest.mark.parametrize("step", [0, 2, 3])
def test_biases_with_gaps_or_of_one_element_are_read_right(
    step: int, places: tuple[int, ...], grad: bool, recompute: bool
) -> None:
    leaves = leaves_of()
    for place in places:
        size = leaves[place].numel()
        memory = torch.linspace(-1, 1, size * max(step, 1) + 1)
        leaves[place] = memory.as_strided((size,), (step,), 1).detach().requires_grad_()
    with torch.set_grad_enabled(grad):
        y, want = run(leaves, recompute=recompute), eager(leaves)
    torch.testing.assert_close(y, want)
    if grad:
        for got, right in zip(gradients(leaves, y), gradients(leaves, want), strict=True):
            torch.testing.assert_close(got, right)


@BOTH_WAYS
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("layout", ["columns", "rows apart", "odd offset"])
def test_saved_tensors_that_come_back_in_another_layout_are_read_right(layout: str, recompute: bool) -> None:
    """Hooks that move or pack what is saved may unpack it with strides of their own."""

    def unpack(tensor: Tensor) -> Tensor:
        if tensor.dim() != 2:
            return tensor
        if layout == "columns":
            return tensor.t().clone(memory_format=torch.contiguous_format).t()
        gap, offset = (0, 3) if layout == "odd offset" else (5, 0)
        rows, columns = tensor.shape
        memory = torch.full((offset + rows * (columns + gap),), float("nan"), dtype=tensor.dtype)
        return memory.as_strided((rows, columns), (columns + gap, 1), offset).copy_(tensor.detach())

    leaves = leaves_of()
    want = gradients(leaves, run(leaves))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        y = run(leaves, recompute=recompute)
    torch.testing.assert_close(gradients(leaves, y), want)


@BOTH_WAYS
@pytest.mark.parametrize("recompute", [False, True])
def test_a_weight_that_moves_to_another_layout_before_the_backward_is_read_right(recompute: bool) -> None:
    leaves = leaves_of()
    want = gradients(leaves, run(leaves))
    y = run(leaves, recompute=recompute)
    for leaf in leaves[1:4]:
        leaf.data = leaf.data.t().contiguous().t()
    torch.testing.assert_close(gradients(leaves, y), want)


# ---- torch.compile ---------------------------------------------------------------------------------------------------


def close(got: Any, want: Any) -> bool:
    """The same bits, but for x: a graph adds two rounded products, which an eager backward accumulates in one."""
    torch.testing.assert_close(got[0], want[0], rtol=2e-3, atol=2e-3)
    return same(got[1:], want[1:])


def traced(call: Callable[..., Any], graphs: list[list[str]], *, dynamic: bool = False) -> Callable[..., Any]:
    """The call compiled in one graph each way, of which the names of the nodes are kept."""

    def keep(graph: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return make_boxed_func(graph.forward)

    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    return torch.compile(call, fullgraph=True, dynamic=dynamic, backend=backend)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_compiled_without_graph_breaks_gives_the_same_bits(
    lead: tuple[int, ...], backend: str, dynamic: bool, recompute: bool
) -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda leaves: run(leaves, recompute=recompute), fullgraph=True, dynamic=dynamic, backend=backend
    )
    for m in (4, 6):
        leaves = leaves_of(m=m, dtype=torch.float16)
        leaves[0] = leaves[0].detach().view(*lead, -1, D).requires_grad_()
        with torch.no_grad():
            assert torch.equal(compiled(leaves), run(leaves))
        assert close(gradients(leaves, compiled(leaves)), gradients(leaves, run(leaves)))


@pytest.mark.parametrize("ambient", [False, True])
def test_compiled_under_autocast_gives_the_same_bits(ambient: bool) -> None:
    def mixed(leaves: list[Any]) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            return run(leaves)

    torch.compiler.reset()
    leaves = leaves_of(m=3)
    compiled = torch.compile(run if ambient else mixed, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.float16, enabled=ambient):
        y = compiled(leaves)
    assert y.dtype is torch.float16
    assert torch.equal(y, mixed(leaves))
    assert close(gradients(leaves, y), gradients(leaves, mixed(leaves)))


def test_compiled_products_that_an_ambient_autocast_casts_lead_to_the_next_backward() -> None:
    """A graph casts nothing between its operators, as the engine of autograd does between nodes."""
    torch.compiler.reset()
    leaves = leaves_of(m=3)
    y = torch.compile(lambda: run([run(leaves), *leaves[1:]]), fullgraph=True, backend="aot_eager")()
    expected = gradients(leaves, run([run(leaves), *leaves[1:]]))
    with torch.autocast("cpu", torch.float16):
        found = gradients(leaves, y)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("lead", [(), (1,)])
def test_a_compiled_graph_holds_one_operator_each_way_and_keeps_what_is_needed(
    lead: tuple[int, ...], recompute: bool
) -> None:
    graphs: list[list[str]] = []
    leaves = leaves_of(m=3, bias=False)
    leaves[0] = leaves[0].detach().view(*lead, -1, D).requires_grad_()
    y = traced(lambda leaves: run(leaves, recompute=recompute), graphs)(leaves)
    kept = {each.untyped_storage().data_ptr() for each in y.grad_fn.saved_tensors}  # a view is kept with what it is of
    gradients(leaves, y)
    forward, backward = ([name for name in names if "getitem" not in name] for names in graphs)
    assert forward == [f"{NAMESPACE}.gated_mlp.default"]
    assert [name for name in backward if name.startswith(NAMESPACE)] == [f"{NAMESPACE}.gated_mlp_middle.default"]
    assert backward.count("aten.mm.default") == 4  # two for x, one for gate and up, one for down
    assert not [name for name in backward if "clone" in name or "copy" in name or "cat" in name]
    assert len(kept) == 4 + (0 if recompute else 2)  # x and three weights, gate and up


@pytest.mark.full  # it compiles fifteen times
def test_compiled_every_choice_of_wanted_gradients() -> None:
    everything = leaves_of(m=5, h=16)
    want = gradients(everything, run(everything))
    for matrices in itertools.product((False, True), repeat=4):
        chosen = (*matrices, matrices[0] != matrices[1], matrices[2], matrices[1] == matrices[3])
        leaves = [leaf.detach().requires_grad_(flag) for leaf, flag in zip(everything, chosen, strict=True)]
        if not any(chosen):
            continue
        graphs: list[list[str]] = []
        y = traced(run, graphs)(leaves)
        y.backward(torch.linspace(-1, 1, y.numel()).view_as(y))
        for leaf, flag, wanted in zip(leaves, chosen, want, strict=True):
            assert (leaf.grad is not None) == flag
            if flag:
                torch.testing.assert_close(leaf.grad, wanted)
        ours = [name for name in graphs[1] if name.startswith(NAMESPACE)]
        assert len(ours) == any(chosen[:6])  # the gradient of down's bias is the sum of dy


@pytest.mark.parametrize("inside", [False, True])
def test_compiled_gradients_of_packed_weights(inside: bool) -> None:
    """Gate and up in one memory, cut in two before the graph or in it."""
    leaves = leaves_of(m=5, bias=False)
    whole = torch.cat((leaves[1], leaves[2])).detach().requires_grad_()

    def apart(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return gated_mlp(x, Weights(gate, up, down), "gelu_tanh")

    def packed(x: Tensor, whole: Tensor, down: Tensor) -> Tensor:
        gate, up = whole.chunk(2)
        return apart(x, gate, up, down)

    operands = [leaves[0], whole, leaves[3]]
    want = gradients(operands, packed(*operands))
    graphs: list[list[str]] = []
    if inside:
        y = traced(packed, graphs)(*operands)
    else:
        y = traced(apart, graphs)(leaves[0], *whole.chunk(2), leaves[3])
    torch.testing.assert_close(gradients(operands, y), want)
    assert [name for name in graphs[1] if name.startswith(NAMESPACE)] == [f"{NAMESPACE}.gated_mlp_middle.default"]


def test_a_nested_region_that_runs_twice_sums_the_gradients_of_both() -> None:
    """Inductor adds the results of an inner graph, and reads a view of one beside its memory."""
    torch.compiler.reset()
    leaves = leaves_of(m=3, bias=False)
    region = torch.compiler.nested_compile_region(lambda x: run([x, *leaves[1:]], "silu"))
    expected = run([run(leaves, "silu"), *leaves[1:]], "silu")
    with fresh_cache():  # a cache's keys know the operator, and not its backward
        y = torch.compile(lambda x: region(region(x)), fullgraph=True)(leaves[0])
        torch.testing.assert_close(gradients(leaves, y), gradients(leaves, expected))


@pytest.mark.parametrize("lead", [(), (1,)])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_compiled_graph_refuses_a_second_derivative(recompute: bool, lead: tuple[int, ...]) -> None:
    torch.compiler.reset()
    leaves = leaves_of(m=3)
    leaves[0] = leaves[0].detach().view(*lead, -1, D).requires_grad_()
    compiled = torch.compile(lambda leaves: run(leaves, recompute=recompute), fullgraph=True, backend="aot_eager")
    loss = compiled(leaves).square().sum() + sum((leaf**3).sum() for leaf in leaves)
    first = torch.autograd.grad(loss, leaves, create_graph=True)
    for one, leaf in itertools.product(first, leaves):
        with pytest.raises(RuntimeError, match="does not currently support double backward"):
            torch.autograd.grad(one.sum(), leaf, retain_graph=True, allow_unused=True)


def test_a_traced_backward_refuses_a_second_derivative() -> None:
    leaves = leaves_of(m=3)

    def twice(*leaves: Tensor) -> tuple[Tensor, ...]:
        (dx,) = torch.autograd.grad(run(list(leaves)).square().sum(), leaves[0], create_graph=True)
        return torch.autograd.grad(dx.sum(), leaves[1])

    with pytest.raises(RuntimeError, match=SECOND):
        make_fx(twice)(*leaves)


@pytest.mark.parametrize("recompute", [False, True])
def test_compiled_autograd_needs_no_graph_break(recompute: bool) -> None:
    torch.compiler.reset()
    leaves = leaves_of(m=3)
    want = gradients(leaves, run(leaves))
    y = run(leaves, recompute=recompute)
    with compiled_autograd._enable(lambda graph: torch.compile(graph, fullgraph=True, backend="aot_eager")):
        y.backward(torch.linspace(-1, 1, y.numel()).view_as(y))
    torch.testing.assert_close([leaf.grad for leaf in leaves], list(want))
