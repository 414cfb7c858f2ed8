"""`packed`: adjacent weights, one product."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from mlpfusion.backends import packed
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.module import GatedMLP
from mlpfusion.spec import MLPSpec

SPEC = MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32", bias=True)


def test_binding_keeps_parameters_and_values_and_copies_once():
    mlp = GatedMLP(SPEC)
    before = {name: (value, value.detach().clone()) for name, value in mlp.named_parameters()}
    mlp.set_backend("packed")
    for name, value in mlp.named_parameters():
        assert value is before[name][0]
        assert torch.equal(value, before[name][1])
    address = mlp.gate_proj.weight.data_ptr()
    assert mlp.up_proj.weight.data_ptr() == address + mlp.gate_proj.weight.nbytes
    mlp.set_backend("packed")
    assert mlp.gate_proj.weight.data_ptr() == address


def test_weights_moved_apart_are_refused_never_misread():
    mlp = GatedMLP(SPEC, backend="packed")
    mlp.up_proj.weight.data = mlp.up_proj.weight.detach().clone()
    for grad in (True, False):
        with torch.set_grad_enabled(grad), pytest.raises(BackendUnavailableError, match=r"set_backend\('packed'\)"):
            mlp(torch.randn(2, 16))
    value = torch.randn(2, 16)
    expected = mlp.set_backend("eager")(value)
    torch.testing.assert_close(mlp.set_backend("packed")(value), expected)


def test_one_product_for_gate_and_up():
    mlp = GatedMLP(SPEC, backend="packed")
    with torch.profiler.profile() as profiler, torch.no_grad():
        mlp(torch.randn(2, 16))
    products = [event for event in profiler.events() if event.name == "aten::addmm"]
    assert len(products) == 2
    assert not [event for event in profiler.events() if event.name in ("aten::cat", "aten::clone")]


def test_the_shapes_that_a_compiler_is_told_are_the_real_ones():
    """`opcheck` clones its arguments one by one, which parts the two weights; this compares fake and real by hand."""
    mlp = GatedMLP(SPEC, backend="packed")
    gate, up, x, dy = mlp.gate_proj, mlp.up_proj, torch.randn(2, 3, 16), torch.randn(2, 3, 48)
    with torch.no_grad():
        for op, arguments in (
            (packed._gate_up_op, (x, gate.weight, up.weight, gate.bias, up.bias)),
            (packed._gradients_op, (dy, x, gate.weight, up.weight)),
        ):
            real = op(*arguments)
            mode = FakeTensorMode()
            stand_ins = [mode.from_tensor(argument.detach().clone()) for argument in arguments]
            with mode:
                fake = op(*stand_ins)
            pairs = [value if isinstance(value, tuple) else (value,) for value in (real, fake)]
            for one, other in zip(*pairs, strict=True):
                assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


@pytest.mark.parametrize("wanted", ["gate_proj", "up_proj", "x"])
def test_frozen_weights_get_no_gradient(wanted):
    mlp = GatedMLP(SPEC, backend="packed").requires_grad_(False)
    x = torch.randn(3, 16, requires_grad=wanted == "x")
    leaf = x if wanted == "x" else getattr(mlp, wanted).weight.requires_grad_()
    mlp(x).sum().backward()
    got = leaf.grad.clone()
    leaf.grad = None
    mlp.set_backend("eager")(x).sum().backward()
    torch.testing.assert_close(got, leaf.grad)


class Adapter(nn.Linear):
    """Stands for LoRA and quantised layers."""


@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "down_proj"])
def test_projections_that_are_more_than_a_product_are_refused_by_name(part):
    mlp = GatedMLP(SPEC)
    setattr(mlp, part, Adapter(*reversed(getattr(mlp, part).weight.shape)))
    with pytest.raises(BackendUnavailableError, match=f"'packed'.*{part} is a Adapter"):
        mlp.set_backend("packed")
    mlp = GatedMLP(SPEC)
    getattr(mlp, part).weight.data = getattr(mlp, part).weight.data.half()
    if part != "gate_proj":
        with pytest.raises(BackendUnavailableError, match=f"{part} is torch.float16"):
            mlp.set_backend("packed")
    mlp = GatedMLP(SPEC)
    getattr(mlp, part).forward = lambda x: x
    with pytest.raises(BackendUnavailableError, match=f"{part} has its forward replaced"):
        mlp.set_backend("packed")
    with pytest.raises(BackendUnavailableError, match="meta"):
        GatedMLP(SPEC, device="meta").set_backend("packed")
