"""What is like a gated MLP is found wherever it lies; what only has linear layers and products is not listed."""

from __future__ import annotations

import pytest
import torch
from support.passed import Gated, Packed, an_input, assert_same, operators, outcome, passed
from torch import nn
from torch.nn import functional


def silu(g, u):
    return functional.silu(g) * u


class Layers(nn.Module):
    """Six square layers and a function of them."""

    def __init__(self, forward):
        super().__init__()
        torch.manual_seed(0)
        for name in "abcdef":
            setattr(self, name, nn.Linear(32, 32, bias=False))
        self.norm = nn.RMSNorm(32)
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


def _attention(m, x):
    return m.d(functional.scaled_dot_product_attention(m.a(x), m.b(x), m.c(x)))


def _eager_attention(m, x):
    q, k, v = m.a(x) * 0.5, m.b(x), m.c(x)
    return m.d(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)


def _gated_attention(m, x):
    y = functional.scaled_dot_product_attention(m.a(x), m.b(x), m.c(x))
    return m.d(y * torch.sigmoid(m.e(x)))


def _rotated(m, x):
    return m.c(m.a(x) * x.cos() + m.b(x) * x.sin())


def _not_gated(m, x):
    return m.b(functional.gelu(m.a(x)))


def _not_gated_but_typed_out(m, x):
    g = m.a(x)
    return m.b(g * torch.sigmoid(g))


def _norm_before(m, x):
    return m.b(m.norm(x + m.a(x)))


def _residual(m, x):
    x = x + m.a(x)
    return m.c(m.norm(x)) * m.b(x)


def _gate_of_another(m, x):
    return m.c(functional.silu(m.a(x)) * m.b(x + 1))


@pytest.mark.parametrize(
    "forward",
    [_attention, _eager_attention, _gated_attention, _rotated, _not_gated, _not_gated_but_typed_out, _norm_before,
     _residual, _gate_of_another],
)  # fmt: skip
def test_what_is_no_near_miss_is_not_listed(forward):
    mlp, x = Layers(forward), an_input()
    ran = passed(mlp, x)
    assert ran.report.entries == ()
    assert not operators(ran)


def _bitnet(m, x):
    return m.c(m.norm(functional.silu(m.a(x)) * m.b(x)))


def _gated_twice(m, x):
    return m.d(functional.silu(m.a(x)) * m.b(x) * m.c(x))


@pytest.mark.parametrize(("forward", "said"), [(_bitnet, "also reads"), (_gated_twice, "further product")])
def test_a_near_miss_is_listed_with_its_reason(forward, said):
    ran = passed(Layers(forward), an_input())
    (miss,) = ran.report.near_misses
    assert said in miss.reason
    assert not operators(ran)


def _nested(m, x):
    return m.c(functional.silu(m.a(x)) * m.b(x)) + m.f(functional.gelu(m.d(x)) * m.e(x))


def _one_into_the_next(m, x):
    return m.f(functional.gelu(m.d(y := m.c(functional.silu(m.a(x)) * m.b(x)))) * m.e(y))


def _functional(m, x):
    p = functional.silu(functional.linear(x, m.a.weight)) * functional.linear(input=x, weight=m.b.weight)
    return functional.linear(p, m.c.weight) + m.f(functional.gelu(m.d(x)) * m.e(x))


def _views_of_x(m, x):
    y = m.c(functional.silu(m.a(x.flatten(0, 1))) * m.b(x.flatten(0, 1))).view(x.shape)
    return y + m.f(functional.gelu(m.d(x)) * m.e(x)[..., :])


@pytest.mark.parametrize("forward", [_nested, _one_into_the_next, _functional, _views_of_x])
def test_each_of_two_is_found(forward):
    mlp, x = Layers(forward), an_input()
    ran = passed(mlp, x)
    assert sorted(each.activation for each in ran.report.placed) == ["gelu", "silu"], str(ran.report)
    assert_same(ran.values, outcome(mlp, mlp, x))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 5), (1, 1), (2, 3, 4), (0, 5)])
def test_x_of_any_shape_is_taken(shape):
    mlp, x = Gated(silu, bias=True), torch.randn(*shape, 32, requires_grad=True)
    ran = passed(mlp, x)
    assert [each.tokens for each in ran.report.placed] == [x.numel() // 32]
    assert_same(ran.values, outcome(mlp, mlp, x)) if x.numel() else None
    assert ran.values["y"].shape == x.shape


def test_a_checkpointed_body_is_a_graph_of_its_own():
    packed = Packed(lambda b: functional.silu(b.chunk(2, -1)[0]) * b.chunk(2, -1)[1])

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = packed

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False) + x

    mlp, x = Whole(), an_input()
    ran = passed(mlp, x, then="aot_eager")
    assert len(ran.report.placed) == 1
    assert_same(ran.values, outcome(mlp, mlp, x))
