"""Sizes, dtypes, devices and kinds of tensors: what an operator takes, and the names of what it does not."""

from __future__ import annotations

import pytest
import torch
from support.passed import Gated, Packed, an_input, assert_same, operators, outcome, passed
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.testing._internal.two_tensor import TwoTensor


def silu(g, u):
    return functional.silu(g) * u


def _wide_out(m):
    m.three = nn.Linear(48, 40, bias=False)


def _narrow_up(m):
    m.two = nn.Linear(32, 1, bias=False)


def _one_bias(m):
    m.one.bias = nn.Parameter(torch.zeros(48))


def _mixed(m):
    m.three = nn.Linear(48, 32, bias=False, dtype=torch.float64)
    m.between = lambda g, u: silu(g, u).double()


CHANGES = {
    "another width out": (_wide_out, "linear has a weight of [48, 32] where y has [40, 48]"),
    "one gate for all": (_narrow_up, "linear_1 has a weight of [1, 32]"),
    "one bias": (_one_bias, "only one of gate and up has a bias"),
    "two dtypes": (_mixed, "its products are of several dtypes: float32, float64"),
    "fp64": (lambda m: m.double(), "float64"),
}


@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES)
def test_what_no_operator_takes_is_named(change, said):
    mlp = Gated(silu)
    change(mlp)
    x = an_input(dtype=mlp.one.weight.dtype)
    ran = passed(mlp, x)
    assert not operators(ran)
    (miss,) = ran.report.near_misses
    assert said in miss.reason
    assert_same(ran.values, outcome(mlp, mlp, x))


class Tagged(torch.Tensor):
    """A subclass that is a plain tensor but by name, as Dynamo finds."""


def _two(weight):
    return TwoTensor(weight.detach().clone(), weight.detach().clone())


@pytest.mark.parametrize("which", ["one", "two", "three"])
def test_weights_that_wrap_tensors_are_named(which):
    mlp = Gated(silu).requires_grad_(False)
    layer = getattr(mlp, which)
    layer.weight = nn.Parameter(_two(layer.weight), requires_grad=False)
    ran = passed(mlp, an_input(grad=False))
    assert not operators(ran), str(ran.report)
    (miss,) = ran.report.near_misses
    assert "a tensor subclass (quantised or sharded?)" in miss.reason


def test_weights_that_wrap_nothing_are_what_they_are():
    mlp, x = Gated(silu).requires_grad_(False), an_input(grad=False)
    mlp.two.weight = nn.Parameter(mlp.two.weight.detach().as_subclass(Tagged), requires_grad=False)
    assert_same(passed(mlp, x).values, outcome(mlp, mlp, x))


def test_an_x_that_is_a_subclass_is_named():
    mlp, x = Gated(silu).requires_grad_(False), an_input(grad=False)
    torch._dynamo.reset()
    ran = passed(lambda y: mlp(TwoTensor(y, y)).a, x)
    assert not operators(ran), str(ran.report)


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", [lambda: Gated(silu, bias=True), lambda: Packed(lambda b: silu(*b.chunk(2, -1)))])
def test_under_autocast_the_operator_gets_what_the_layers_would(dtype, outside, make):
    mlp, x = make(), an_input()

    def inside(v):
        with torch.autocast("cpu", dtype):
            return mlp(v)

    if outside:
        with torch.autocast("cpu", dtype):
            ran, right = passed(mlp, x), outcome(mlp, mlp, x)
    else:
        ran, right = passed(inside, x), outcome(inside, inside, x)
    assert [each.dtype for each in ran.report.placed] == [str(dtype).removeprefix("torch.")], str(ran.report)
    assert ran.values["y"].dtype == dtype
    assert_same(ran.values, right, rel=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits_are_taken_as_they_are(dtype):
    mlp, x = Gated(silu, bias=True, dtype=dtype), an_input(dtype=dtype)
    ran = passed(mlp, x)
    assert [each.dtype for each in ran.report.placed] == [str(dtype).removeprefix("torch.")]
    assert_same(ran.values, outcome(mlp, mlp, x), rel=0.02)


def test_weights_that_are_computed_get_their_gradients():
    mlp, x = Gated(silu), an_input()
    for layer in (mlp.one, mlp.three):
        parametrizations.weight_norm(layer)
    ran = passed(mlp, x)
    assert len(ran.report.placed) == 1
    assert_same(ran.values, outcome(mlp, mlp, x))


def test_gate_and_up_of_one_weight_are_taken_unless_the_backend_cannot():
    mlp, x = Gated(silu), an_input()
    mlp.two.weight = mlp.one.weight
    ran = passed(mlp, x)
    assert len(ran.report.placed) == 1
    assert_same(ran.values, outcome(mlp, mlp, x))
    (kept,) = passed(mlp, x, using="fused").report.kept
    assert "share one memory" in kept.reason


def test_a_weight_that_the_kernels_cannot_read_is_named():
    mlp, x = Gated(silu), an_input()
    transposed = nn.Parameter(torch.randn(32, 48))
    ran = passed(
        lambda v: mlp.three(silu(functional.linear(v, transposed.t()), mlp.two(v))), x, using="fused"
    )  # fmt: skip
    (kept,) = ran.report.kept
    assert "rows of adjacent elements" in kept.reason
    assert not operators(ran)
