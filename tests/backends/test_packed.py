"""`packed`: adjacent weights, one product."""

from __future__ import annotations

import msgspec
import pytest
import torch
from support.bypassed import CHANGES, change_a_layer
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

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


def turned(mlp):
    mlp.gate_proj.weight.data = mlp.gate_proj.weight.data.t()


def both_turned(mlp):
    for part in (mlp.gate_proj, mlp.up_proj):
        part.weight.data = part.weight.data.t()


def cut(mlp):
    for part in (mlp.gate_proj, mlp.up_proj):
        part.weight.data, part.bias.data = part.weight.data[:8], part.bias.data[:8]
    mlp.down_proj.weight.data = mlp.down_proj.weight.data[:, :8]


def bias_cut(mlp):
    mlp.gate_proj.bias.data = mlp.gate_proj.bias.data[:8]


def bias_spread(mlp):
    mlp.up_proj.bias.data = mlp.up_proj.bias.data.as_strided((16,), (0,))


def read_as_another_dtype(mlp):
    for part in (mlp.gate_proj, mlp.up_proj):
        part.weight.data = part.weight.data.view(torch.int32)


CHANGED = [turned, both_turned, cut, bias_cut, bias_spread, read_as_another_dtype]
SQUARE = MLPSpec(hidden_size=16, intermediate_size=16, dtype="float32", bias=True)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("change", CHANGED, ids=lambda change: change.__name__)
def test_the_same_address_is_not_the_same_tensor(change, grad):
    mlp = GatedMLP(SQUARE, backend="packed").requires_grad_(False)
    change(mlp)
    x = torch.randn(2, 16, requires_grad=grad)
    text = r"x is torch.float32 and the weights are torch.int32|set_backend\('packed'\)"
    with torch.set_grad_enabled(grad), pytest.raises(BackendUnavailableError, match=text):
        mlp(x)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("one", [[], ["gate_proj"], ["up_proj"], ["down_proj"], ["gate_proj", "up_proj"]])
@pytest.mark.parametrize("bias", [True, False])
def test_biases_that_come_or_go_after_binding_are_followed_or_refused(bias, one, grad):
    spec = MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32", bias=bias)
    mlp, x = GatedMLP(spec, backend="packed"), torch.randn(2, 16)
    for name in one:
        part = getattr(mlp, name)
        part.bias = None if bias else nn.Parameter(torch.randn(part.weight.shape[0]))
    known = {"gate_proj", "up_proj"} & set(one)
    with torch.set_grad_enabled(grad):
        if len(known) == 1:
            with pytest.raises(BackendUnavailableError, match=r"gate_proj.*up_proj.*set_backend\('packed'\)"):
                mlp(x)
            return
        if known and not bias:
            with pytest.raises(
                BackendUnavailableError, match=r"biases of gate_proj and up_proj.*set_backend\('packed'"
            ):
                mlp(x)
            mlp.set_backend("packed")
        got = mlp(x)
        torch.testing.assert_close(got, mlp.set_backend("eager")(x))


def test_one_row_of_gate_and_up_is_read_at_its_own_length():
    """PyTorch calls one row contiguous whatever its stride says."""
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=1, dtype="float32"))
    both, x = torch.randn(32, 1), torch.randn(2, 16)
    mlp.gate_proj.weight.data, mlp.up_proj.weight.data = both[:16].t(), both[16:].t()
    expected = mlp(x)
    torch.testing.assert_close(mlp.set_backend("packed")(x), expected)


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
            (packed._gate_up_op, (x, gate.weight, up.weight, gate.bias, up.bias, "")),
            (packed._gradients_op, (dy, x, gate.weight, up.weight, True, True)),
        ):
            real = op(*arguments)
            mode = FakeTensorMode()
            stand_ins = [
                mode.from_tensor(argument.detach().clone()) if isinstance(argument, torch.Tensor) else argument
                for argument in arguments
            ]
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


def test_hooks_that_come_after_binding_are_refused_not_bypassed():
    for grad in (True, False):
        for change in CHANGES:
            mlp = GatedMLP(SPEC, backend="packed")
            change_a_layer(mlp, change)
            with torch.set_grad_enabled(grad), pytest.raises(BackendUnavailableError, match="would bypass"):
                mlp(torch.randn(2, 16))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.complex64, torch.bool])
@pytest.mark.parametrize("autocast", [True, False])
def test_what_autocast_leaves_alone_is_refused_as_eager_does(autocast, dtype, grad):
    mlp, x = GatedMLP(SPEC), torch.ones(2, 16, dtype=dtype)
    with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        for backend, error in (("eager", RuntimeError), ("packed", (BackendUnavailableError, RuntimeError))):
            mlp.set_backend(backend)
            with pytest.raises(error, match=r"dtype|torch\.float32"):
                mlp(x)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_autocast_casts_is_cast(dtype, grad):
    mlp, x = GatedMLP(SPEC), torch.randn(2, 16).to(dtype)
    with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.float16):
        expected = mlp(x)
        got = mlp.set_backend("packed")(x)
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("part", ["gate_proj", "up_proj"])
def test_a_bias_on_one_of_the_two_is_refused(part):
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32"))
    getattr(mlp, part).bias = nn.Parameter(torch.ones(24))
    assert mlp.spec.bias
    with pytest.raises(BackendUnavailableError, match="only one of gate_proj and up_proj has a bias"):
        mlp.set_backend("packed")


def test_weights_that_cannot_be_moved_are_refused_and_left_where_they_are():
    tied = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32"))
    tied.up_proj.weight = tied.gate_proj.weight
    address = tied.gate_proj.weight.data_ptr()
    with pytest.raises(BackendUnavailableError, match="share one weight"):
        tied.set_backend("packed")
    assert tied.gate_proj.weight.data_ptr() == address
    flat = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32"))
    buffer = torch.randn(5 * 24 * 16)
    flat.gate_proj.weight.data = buffer[: 24 * 16].view(24, 16)
    flat.up_proj.weight.data = buffer[2 * 24 * 16 : 3 * 24 * 16].view(24, 16)
    with pytest.raises(BackendUnavailableError, match="part of a larger buffer"):
        flat.set_backend("packed")


def test_a_single_row_trains():
    mlp, x = GatedMLP(SPEC, backend="packed"), torch.randn(16, requires_grad=True)
    got = torch.autograd.grad(mlp(x).sum(), (x, *mlp.parameters()))
    expected = torch.autograd.grad(mlp.set_backend("eager")(x).sum(), (x, *mlp.parameters()))
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_products_that_nobody_wants_are_not_computed():
    mlp = GatedMLP(SPEC, backend="packed")
    y = mlp(torch.randn(2, 16))  # x needs no gradient: no product with the weights in backward
    with torch.profiler.profile() as profiler:
        y.sum().backward()
    assert len([event for event in profiler.events() if event.name == "aten::mm"]) == 3


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


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_forward_mode_is_eagers(bias, compiled):
    mlp = GatedMLP(msgspec.structs.replace(SPEC, bias=bias))
    x, tangent = torch.randn(3, 16), torch.randn(3, 16)

    def pushed(x, tangent):
        return torch.func.jvp(mlp, (x,), (tangent,))

    expected = pushed(x, tangent)
    mlp.set_backend("packed")
    torch.compiler.reset()
    found = (torch.compile(pushed, backend="aot_eager") if compiled else pushed)(x, tangent)
    torch.testing.assert_close(found, expected)
    with forward_ad.dual_level(), torch.no_grad():
        dual = forward_ad.unpack_dual(mlp(forward_ad.make_dual(x, tangent)))
        torch.testing.assert_close(dual.tangent, expected[1])
