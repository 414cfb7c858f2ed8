"""The operator: PyTorch's own checks of it, its backward against autograd's, and who runs which number of tokens."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from functorch.compile import make_boxed_func
from support.logged import warnings_of
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.utils import fresh_cache
from torch.autograd import forward_ad
from torch.nn import functional

from mlpfusion.backends.eager import FUNCTIONS
from mlpfusion.inductor import operator
from mlpfusion.inductor.operator import OPERATOR, Rule, written
from mlpfusion.spec import ACTIVATIONS

ALWAYS = {name: written((Rule(0, None, name),)) for name in ("eager", "fused")}


def tensors(dtype=torch.float32, *, bias=True, shape=(2, 3), d=16, h=32):
    generator = torch.Generator().manual_seed(0)
    shapes = [(*shape, d), (h, d), (h, d), (d, h), (h,), (h,), (d,)]
    made = [torch.randn(each, generator=generator).mul_(0.5).to(dtype).requires_grad_() for each in shapes]
    return made if bias else [*made[:4], None, None, None]


def right(activation, x, gate, up, down, gate_bias=None, up_bias=None, down_bias=None):
    first, second = functional.linear(x, gate, gate_bias), functional.linear(x, up, up_bias)
    return functional.linear(FUNCTIONS[activation](first) * second, down, down_bias)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ALWAYS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_and_gradients_are_those_of_three_layers(activation, name, bias):
    given = tensors(bias=bias)
    y = OPERATOR(*given, activation, True, ALWAYS[name], "")[0]
    expected = right(activation, *given)
    leaves = [each for each in given if each is not None]
    dy = torch.linspace(-1, 1, y.numel()).view_as(y)
    torch.testing.assert_close(y, expected)
    for one, other in zip(*(torch.autograd.grad(each, leaves, dy) for each in (y, expected)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ALWAYS)
def test_gradients_come_without_what_was_kept(name):
    given = tensors(bias=False)
    y = OPERATOR(*given, "silu", False, ALWAYS[name], "")[0]
    expected = right("silu", *given[:4])
    for one, other in zip(*(torch.autograd.grad(each.sum(), given[:4]) for each in (y, expected)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("shape", [(2, 3), (), (4,)])
def test_the_operator_is_what_it_says_to_a_compiler(shape, keep):
    given = tensors(shape=shape)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(OPERATOR, (*given, "gelu", keep, ALWAYS["eager"], "x"), test_utils=checks)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("name", ALWAYS)
def test_the_operator_of_the_middle_is_what_it_says_to_a_compiler(name, kept):
    x, *weights = tensors()
    _, gate, up = OPERATOR(x, *weights, "gelu", kept, ALWAYS[name], "")
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    given = (torch.randn(6, 16), x, gate, up, *weights, "gelu", ALWAYS[name], "x")
    torch.library.opcheck(torch.ops.mlpfusion.gated_mlp_middle.default, given, test_utils=checks)


def traced(rules, *, keep=True, dynamic=False):
    """The operator compiled in one graph each way, and a list of the operators of ours in each."""
    graphs = []

    def kept(graph, _inputs):
        names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        graphs.append([name for name in names if name.startswith("mlpfusion")])
        return make_boxed_func(graph.forward)

    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=kept, bw_compiler=kept)
    call = torch.compile(
        lambda *given: OPERATOR(*given, "silu", keep, rules, "")[0], fullgraph=True, dynamic=dynamic, backend=backend
    )
    return call, graphs


FORWARD, MIDDLE, BACKWARD = (f"mlpfusion.gated_mlp{part}.default" for part in ("", "_middle", "_backward"))


@pytest.mark.parametrize(("keep", "bias", "shape"), [*product((True, False), (True, False), ((2, 3), (4,)))])
@pytest.mark.parametrize("name", ALWAYS)
def test_a_graph_has_one_operator_each_way_and_the_products_beside_it(name, keep, bias, shape):
    call, graphs = traced(ALWAYS[name], keep=keep)
    given = tensors(bias=bias, shape=shape)
    leaves = [each for each in given if each is not None]
    with operator.noting() as ran:
        found = torch.autograd.grad(call(*given).square().sum(), leaves)
    assert ran == [None, None]
    assert graphs == [[FORWARD], [MIDDLE]]
    for one, other in zip(found, torch.autograd.grad(right("silu", *given).square().sum(), leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.full  # it compiles sixteen times
def test_a_graph_gives_every_choice_of_wanted_gradients():
    everything = tensors()
    want = torch.autograd.grad(right("silu", *everything).square().sum(), everything)
    for matrices in product((False, True), repeat=4):
        chosen = (*matrices, matrices[0] != matrices[1], matrices[2], matrices[1] == matrices[3])
        given = [each.detach().requires_grad_(flag) for each, flag in zip(everything, chosen, strict=True)]
        call, graphs = traced(ALWAYS["fused"])
        call(*given).square().sum().backward()
        for each, flag, wanted in zip(given, chosen, want, strict=True):
            assert (each.grad is not None) == flag
            if flag:
                torch.testing.assert_close(each.grad, wanted, rtol=1e-4, atol=1e-5)
        assert graphs[1] == [MIDDLE] * any(chosen[:6])


def test_a_backend_without_a_middle_runs_the_whole_backward(monkeypatch):
    whole = operator.PRODUCTS._replace(middle=None)
    monkeypatch.setattr(operator, "_of", lambda name: whole if name == "whole" else operator.PRODUCTS)
    given = tensors()
    want = torch.autograd.grad(right("silu", *given).sum(), given)
    for rules in ((Rule(0, None, "whole"),), (Rule(0, 4, "parts"), Rule(5, None, "whole"))):
        call, graphs = traced(written(rules))
        found = torch.autograd.grad(call(*given).sum(), given)
        assert graphs == [[FORWARD], [BACKWARD]]
        for one, other in zip(found, want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("whole", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_nested_region_that_runs_twice_sums_the_gradients_of_both(whole, monkeypatch):
    if whole:
        made = operator.PRODUCTS._replace(middle=None)
        monkeypatch.setattr(operator, "_of", lambda _: made)
    torch.compiler.reset()
    given = tensors(bias=False)
    region = torch.compiler.nested_compile_region(
        lambda x: OPERATOR(x, *given[1:], "silu", True, ALWAYS["eager"], "")[0]
    )
    want = torch.autograd.grad(right("silu", right("silu", *given), *given[1:]).sum(), given[:4])
    with fresh_cache():
        y = torch.compile(lambda x: region(region(x)), fullgraph=True)(given[0])
        found = torch.autograd.grad(y.sum(), given[:4])
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_each_number_of_tokens_goes_to_its_backend_in_a_graph_each_way():
    call, graphs = traced(written((Rule(4, None, "fused"),)), dynamic=True)
    for tokens, reason in ((2, operator.UNCHOSEN), (8, None), (3, operator.UNCHOSEN), (4, None)):
        given = tensors(shape=(tokens,))
        with operator.noting() as ran:
            found = torch.autograd.grad(call(*given).sum(), given)
        assert ran == [reason, reason]
        for one, other in zip(found, torch.autograd.grad(right("silu", *given).sum(), given), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert graphs == [[FORWARD], [MIDDLE]]


@pytest.mark.parametrize("name", ALWAYS)
def test_ambient_autocast_casts_nothing_in_a_graph(name):
    given = tensors()
    want = torch.autograd.grad(traced(ALWAYS[name])[0](*given).sum(), given)
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.autograd.grad(traced(ALWAYS[name])[0](*given).sum(), given)
    assert all(torch.equal(*pair) for pair in zip(found, want, strict=True))


@pytest.mark.parametrize("name", ALWAYS)
def test_a_gradient_of_another_dtype_becomes_that_of_the_operands(name):
    """Where a graph's products run under an ambient autocast, the gradient that comes in is its dtype's."""
    given = tensors()
    torch.compiler.reset()
    call = torch.compile(
        lambda x, *weights: OPERATOR(
            OPERATOR(x, *weights, "silu", True, ALWAYS[name], "")[0], *weights, "silu", True, ALWAYS[name], ""
        )[0],
        backend="aot_eager",
    )
    want = torch.autograd.grad(right("silu", right("silu", *given), *given[1:]).sum(), given)
    y = call(*given)
    with torch.autocast("cpu", torch.float16):
        found = torch.autograd.grad(y.sum(), given)
    for one, other in zip(found, want, strict=True):
        assert one.dtype is torch.float32
        assert (one - other).abs().max() <= 1e-2 * other.abs().max()


@pytest.mark.parametrize("shape", [(2, 3), (4,)])
def test_a_graph_is_differentiated_once(shape):
    call, _ = traced(ALWAYS["fused"])
    given = tensors(shape=shape)
    first = torch.autograd.grad(call(*given).square().sum(), given, create_graph=True)
    for one, leaf in product(first, given):
        with pytest.raises(RuntimeError, match="does not currently support double backward"):
            torch.autograd.grad(one.sum(), leaf, retain_graph=True, allow_unused=True)


def test_it_is_differentiated_once():
    given = tensors()
    (dx,) = torch.autograd.grad(
        OPERATOR(*given, "silu", True, ALWAYS["eager"], "")[0].sum(), given[0], create_graph=True
    )
    with pytest.raises(RuntimeError, match="no second derivative"):
        dx.sum().backward()


def test_each_number_of_tokens_goes_to_its_backend(monkeypatch):
    ran = []

    def made(name):
        def forward(*given):
            ran.append(name)
            return operator.PRODUCTS.forward(*given)

        return operator.PRODUCTS._replace(forward=forward)

    monkeypatch.setattr(operator, "_of", made)
    monkeypatch.setattr(operator, "PRODUCTS", operator.PRODUCTS)
    rules = written((Rule(2, 4, "few"), Rule(8, None, "many")))
    for tokens in (0, 1, 2, 4, 5, 7, 8, 100):
        OPERATOR(*tensors(shape=(tokens,)), "silu", False, rules, "")
    assert ran == ["few", "few", "many", "many"]


def test_weights_that_cannot_be_read_where_they_lie_run_by_products_with_a_warning():
    given = tensors(bias=False)
    storage = torch.empty(given[1].numel() + 1)
    shifted = storage[1:].view_as(given[1]).copy_(given[1].detach())
    assert shifted.data_ptr() % 16
    operator._warn_once.cache_clear()
    with warnings_of(operator.LOG) as said:
        y = OPERATOR(given[0], shifted, *given[2:], "silu", False, ALWAYS["fused"], "")[0]
    assert len(said) == 1
    assert "by PyTorch's products and not by fused" in said[0]
    torch.testing.assert_close(y, right("silu", given[0], shifted, *given[2:4]))


def test_rules_are_written_so_that_equal_ones_are_equal_text():
    rules = (Rule(1, 8, "a"), Rule(9, None, "b"))
    assert written(rules) == written(tuple(rules))
    assert operator._read(written(rules)) == rules
    assert all(one.last < other.first for one, other in pairwise(rules))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_ambient_autocast_casts_nothing_twice(dtype):
    given = [each.detach() for each in tensors(dtype)]
    expected = OPERATOR(*given, "silu", False, ALWAYS["eager"], "")[0]
    with torch.autocast("cpu", torch.bfloat16):
        y = OPERATOR(*given, "silu", False, ALWAYS["eager"], "")[0]
    assert torch.equal(y, expected)


def test_forward_mode_is_refused():
    x, *others = (each if each is None else each.detach() for each in tensors())
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="no forward-mode derivative"):
        OPERATOR(forward_ad.make_dual(x, x), *others, "silu", True, ALWAYS["fused"], "")
