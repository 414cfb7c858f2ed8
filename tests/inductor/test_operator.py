"""The operator: PyTorch's own checks of it, its backward against autograd's, and who runs which number of tokens."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from support.logged import warnings_of
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
