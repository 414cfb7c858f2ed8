"""What crosses a cone, leaks from it or is read in it is a reason to leave it; what only lies beside it is none."""

from __future__ import annotations

import pytest
import torch
from support.passed import Gated, an_input, assert_same, operators, outcome, passed
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional


def silu(g, u):
    return functional.silu(g) * u


class Crossed(Gated):
    """A gated MLP with room between its layers."""

    def __init__(self, forward):
        super().__init__(silu)
        self.crossed = forward
        self.register_buffer("other", torch.ones(2, 5, 32))

    def forward(self, x):
        return self.crossed(self, x)


def _x_changed(m, x):
    x = x * 1
    g = m.one(x)
    x.add_(1)
    return m.three(silu(g, m.two(x)))


def _x_changed_by_operator(m, x):
    x = x * 1
    g = m.one(x)
    x += 1
    return m.three(silu(g, m.two(x)))


def _x_set(m, x):
    x = x * 1
    g = m.one(x)
    x[..., 0] = 3.0
    return m.three(silu(g, m.two(x)))


def _x_changed_before_down(m, x):
    x = x * 1
    p = silu(m.one(x), m.two(x))
    x.mul_(2)
    return m.three(p) + x


def _x_changed_through_a_view(m, x):
    x = x * 1
    view = x[..., :4]
    g = m.one(x)
    view.zero_()
    return m.three(silu(g, m.two(x)))


def _x_written_to(m, x):
    x = x * 1
    g = m.one(x)
    torch.add(x, 1.0, out=x)
    return m.three(silu(g, m.two(x)))


def _relu_in_place_of_x(m, x):
    x = x * 1
    g = m.one(x)
    functional.relu(x, inplace=True)
    return m.three(silu(g, m.two(x)))


def _copied_before_x_changed(m, x):
    x = x * 1
    a = x.to(torch.float32, copy=True)
    x.add_(1)
    b = x.to(torch.float32, copy=True)
    return m.three(silu(m.one(a), m.two(b)))


def _x_changed_between_its_views(m, x):
    x = x * 1
    g = m.one(x.flatten(0, 1))
    x.add_(1)
    return m.three(silu(g, m.two(x.flatten(0, 1))))


def _flat_copies_around_a_change(m, x):
    x = x * 1
    y = x.transpose(0, 1)
    a = y.reshape(10, 32)
    x.mul_(3)
    b = y.reshape(10, 32)
    return m.three(silu(m.one(a), m.two(b)))


def _weight_changed(m, x):
    g = m.one(x)
    with torch.no_grad():
        m.two.weight.mul_(1.5)
    return m.three(silu(g, m.two(x)))


def _no_grad_gate(m, x):
    with torch.no_grad():
        g = functional.silu(m.one(x))
    return m.three(g * m.two(x))


def _no_grad_up(m, x):
    g = functional.silu(m.one(x))
    with torch.no_grad():
        u = m.two(x)
    return m.three(g * u)


def _no_grad_between(m, x):
    g, u = m.one(x), m.two(x)
    with torch.no_grad():
        m.other.sum()
        torch.ones(3)
        p = m.other * 2
    return m.three(silu(g, u)) + p


def _autocast_between(m, x):
    g = m.one(x)
    with torch.autocast("cpu", torch.bfloat16):
        u = m.two(x)
    return m.three(functional.silu(g) * u.float())


def _autocast_of_the_gate(m, x):
    with torch.autocast("cpu", torch.bfloat16):
        g = functional.silu(m.one(x))
    return m.three(g.float() * m.two(x))


def _autocast_off_between(m, x):
    with torch.autocast("cpu", torch.bfloat16):
        g = m.one(x)
        with torch.autocast("cpu", enabled=False):
            u = m.two(x).bfloat16()
        return m.three(silu(g, u)).float()


CROSSED = {
    each.__name__[1:]: (each, said)
    for each, said in (
        (_x_changed, "add_ changes"),
        (_x_changed_by_operator, "iadd changes"),
        (_x_set, "setitem changes"),
        (_x_changed_before_down, "mul_ changes"),
        (_x_changed_through_a_view, "zero_ changes"),
        (_x_written_to, "add changes"),
        (_relu_in_place_of_x, "relu"),
        (_copied_before_x_changed, "add_ changes"),
        (_x_changed_between_its_views, "add_ changes"),
        (_flat_copies_around_a_change, "mul_ changes"),
        (_weight_changed, "switches a mode"),
        (_no_grad_gate, "_set_grad_enabled switches a mode"),
        (_no_grad_up, "_set_grad_enabled switches a mode"),
        (_no_grad_between, "_set_grad_enabled switches a mode"),
        (_autocast_between, "autocast switches a mode"),
        (_autocast_of_the_gate, "autocast switches a mode"),
        (_autocast_off_between, "autocast switches a mode"),
    )
}


@pytest.mark.parametrize(("forward", "said"), CROSSED.values(), ids=CROSSED)
def test_what_changes_a_mode_or_a_tensor_on_the_way_is_named(forward, said):
    mlp, twin = (Crossed(forward).requires_grad_("no_grad" in said or "grad_enabled" in said) for _ in range(2))
    x = an_input(grad=False)
    ran = passed(mlp, x)
    assert not operators(ran), str(ran.report)
    (miss,) = ran.report.near_misses
    assert said in miss.reason
    assert_same(ran.values, outcome(twin, twin, x))  # twins: some change their own weights


def _another_x_by_out(m, x):
    other = torch.empty_like(x)
    written = torch.add(x, 1.0, out=other)
    return m.three(silu(m.one(x), m.two(written)))


def _another_x_by_set(m, x):
    return m.three(silu(m.one(x), m.two(torch.empty_like(x).copy_(x * 2))))


@pytest.mark.parametrize("forward", [_another_x_by_out, _another_x_by_set])
def test_what_is_written_elsewhere_is_another_x(forward):
    mlp, x = Crossed(forward).requires_grad_(False), an_input(grad=False)
    ran = passed(mlp, x)
    assert not operators(ran), str(ran.report)
    assert_same(ran.values, outcome(mlp, mlp, x))


def _reused_gate(m, x):
    g = m.one(x)
    return m.three(silu(g, m.two(x))) + g.sum()


def _reused_product(m, x):
    p = silu(m.one(x), m.two(x))
    return m.three(p) + p.mean()


def _given_back(m, x):
    m.kept = m.one(x)
    return m.three(silu(m.kept, m.two(x)))


def _reads_a_factor(m, x):
    return m.three(silu(m.one(x), m.two(x)) * m.other[0, 0, 0])


def _adapter_on_gate(m, x):
    return m.three(silu(m.one(x) + functional.linear(functional.linear(x, m.a), m.b), m.two(x)))


def _adapter_on_up(m, x):
    return m.three(silu(m.one(x), m.two(x) + functional.linear(functional.linear(x, m.a), m.b)))


def _adapter_on_down(m, x):
    p = silu(m.one(x), m.two(x))
    return m.three(p) + functional.linear(functional.linear(p, m.b.T), m.a.T)


REFUSED = {
    each.__name__[1:]: (each, said)
    for each, said in (
        (_reused_gate, "is used elsewhere too, by"),
        (_reused_product, "is used elsewhere too, by"),
        (_given_back, "is used elsewhere too, by the output"),
        (_reads_a_factor, "it also reads"),
        (_adapter_on_gate, "a further product before"),
        (_adapter_on_up, "a further product before"),
        (_adapter_on_down, "is used elsewhere too, by"),
    )
}


@pytest.mark.parametrize(("forward", "said"), REFUSED.values(), ids=REFUSED)
def test_what_leaks_or_is_read_besides_is_named(forward, said):
    mlp, x = Crossed(forward), an_input()
    mlp.a, mlp.b = nn.Parameter(torch.randn(4, 32)), nn.Parameter(torch.randn(48, 4))
    ran = passed(mlp, x)
    assert not operators(ran), str(ran.report)
    assert said in ran.report.near_misses[0].reason
    assert_same(ran.values, outcome(mlp, mlp, x))


def _beside(m, x):
    with torch.no_grad():
        s = x.sum()
    x = x + s
    y = m.three(silu(m.one(x), m.two(x)))
    y.add_(1)
    with torch.autocast("cpu", torch.bfloat16):
        z = y * 1
    return z.relu_()


def test_what_changes_before_or_after_is_no_reason():
    mlp, x = Crossed(_beside), an_input()
    ran = passed(mlp, x, then="aot_eager")  # autograd sees no view that is changed, as under Inductor
    assert len(ran.report.placed) == 1, str(ran.report)
    assert_same(ran.values, outcome(mlp, mlp, x))


def _differentiated(m, x):
    return torch.func.grad(lambda v: m.three(silu(m.one(v), m.two(v))).sum())(x)


def _mapped(m, x):
    return torch.func.vmap(lambda v: m.three(silu(m.one(v), m.two(v))))(x)


def _pushed_forward(m, x):
    return torch.func.jvp(lambda v: m.three(silu(m.one(v), m.two(v))), (x,), (torch.ones_like(x),))[1]


def _pulled_back(m, x):
    y, back = torch.func.vjp(lambda v: m.three(silu(m.one(v), m.two(v))), x)
    return back(y)[0]


TRANSFORMS = {each.__name__[1:]: each for each in (_differentiated, _mapped, _pushed_forward, _pulled_back)}


@pytest.mark.parametrize("forward", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_of_functorch_in_the_graph_is_named(forward):
    mlp, x = Crossed(forward), an_input(grad=False)
    for parameter in mlp.parameters():
        parameter.requires_grad_(False)
    ran = passed(mlp, x)
    assert not operators(ran)
    assert all("torch.func" in each.reason for each in ran.report.near_misses), str(ran.report)
    assert_same(ran.values, outcome(mlp, mlp, x))


def _dual(m, x):
    with forward_ad.dual_level():
        v = forward_ad.make_dual(x, torch.ones_like(x))
        return forward_ad.unpack_dual(m.three(silu(m.one(v), m.two(v)))).tangent


def test_forward_mode_in_the_graph_is_named():
    mlp, x = Crossed(_dual), an_input(grad=False)
    with torch.no_grad():
        ran = passed(mlp, x)
        assert not operators(ran)
        assert all("forward mode" in each.reason for each in ran.report.near_misses), str(ran.report)
        assert ran.report.near_misses
        assert_same(ran.values, outcome(mlp, mlp, x))


def test_an_exported_graph_is_named():
    from mlpfusion.inductor.ledger import LEDGER
    from mlpfusion.inductor.passes import Pass
    from mlpfusion.inductor.settings import settle

    LEDGER.clear()
    exported = torch.export.export(Gated(silu), (an_input(grad=False),)).module()
    Pass(settle("eager", 0))(exported.graph)
    (miss,) = LEDGER.report().near_misses
    assert "torch.export" in miss.reason
