"""Gradients as an operator returns them come apart as they were, with the shapes foretold and no needless copy."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mlpfusion_kernels import Weights, gated_mlp
from mlpfusion_kernels.gradients import (
    Wanted,
    by_middle,
    is_nested,
    is_traced,
    joined,
    parted,
    shapes,
    without_autocast,
)
from torch import Tensor
from torch._higher_order_ops.utils import reenter_make_fx
from torch._inductor.utils import run_and_get_code
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

D, H = 6, 10
X = torch.zeros(3, D)
OPERANDS = (X, *(torch.zeros(shape) for shape in ((H, D), (H, D), (D, H), (H,), (H,), (D,))))


def gradients(wanted: Wanted, *, halves: bool) -> list[torch.Tensor | None]:
    """A value of its own everywhere; those of gate and up apart, or as the halves of one tensor."""
    made = [torch.randn(each.shape) if want else None for each, want in zip(OPERANDS, wanted, strict=True)]
    for first, second in ((1, 2), (4, 5)):
        one, other = made[first], made[second]
        if halves and one is not None and other is not None:
            made[first], made[second] = torch.cat((one, other)).chunk(2)
    return made


@given(st.tuples(*[st.booleans()] * 7), st.booleans())
def test_what_is_joined_comes_apart_as_it_was(flags: tuple[bool, ...], halves: bool) -> None:
    wanted = Wanted(*flags)
    before = gradients(wanted, halves=halves)
    five = joined(before, X)
    assert [tuple(each.shape) for each in five] == shapes(OPERANDS, wanted)
    assert all(each.is_contiguous() and each.dtype == X.dtype for each in five)
    for one, other in zip(before, parted(five, wanted), strict=True):
        assert (one is None) == (other is None)
        assert one is None or (other is not None and torch.equal(one, other))


def test_halves_of_one_tensor_are_not_copied() -> None:
    wanted = Wanted(*[True] * 7)
    before = gradients(wanted, halves=True)
    places = {each.untyped_storage().data_ptr() for each in before if each is not None}
    five = joined(before, X)
    assert {each.untyped_storage().data_ptr() for each in five} == places
    assert len(places) == 5
    assert [each.untyped_storage().nbytes() for each in five] == [each.nbytes for each in five]


@pytest.mark.parametrize(("transposed", "order"), [*product((False, True), ((0, 1), (1, 0)))])
def test_other_parts_of_one_tensor_are_copied_and_right(transposed: bool, order: tuple[int, int]) -> None:
    whole = torch.randn(D, 2 * H).T if transposed else torch.randn(2 * H, D)
    halves = whole.chunk(2)
    gate, up = halves[order[0]], halves[order[1]]
    five = joined((None, gate, up, None, None, None, None), X)
    found = parted(five, Wanted(False, True, True, False, False, False, False))
    assert torch.equal(found[1], gate)  # type: ignore[arg-type]
    assert torch.equal(found[2], up)  # type: ignore[arg-type]


def test_a_part_of_a_larger_tensor_keeps_none_of_it_alive() -> None:
    alone = torch.randn(4 * H, D)[H : 2 * H]
    five = joined((None, alone, None, None, None, None, None), X)
    assert five[1].untyped_storage().nbytes() == alone.nbytes


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_compiled_code_multiplies_and_returns_halves_as_they_lie(shape: tuple[int, ...]) -> None:
    torch.compiler.reset()
    weights = [torch.randn(shape, requires_grad=True) for shape in ((32, 16), (32, 16), (16, 32))]
    x, dy = torch.randn(*shape, 16, requires_grad=True), torch.randn(*shape, 16)
    compiled = torch.compile(lambda: gated_mlp(x, Weights(*weights), "silu"))
    found, codes = run_and_get_code(lambda: torch.autograd.grad(compiled(), (x, *weights), dy))
    backward = codes[-1]
    assert backward.count("gated_mlp_middle.default(") == 1
    assert backward.count("extern_kernels.mm(") + backward.count("extern_kernels.addmm(") == 4
    assert "cpp_fused" not in backward
    _, gate, up, _ = found
    assert gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr()
    torch.testing.assert_close(found, torch.autograd.grad(gated_mlp(x, Weights(*weights), "silu"), (x, *weights), dy))


# ---- by the middle of a backward -------------------------------------------------------------------------------------


def leaves_of(*lead: int, adjacent: bool = False, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """x [*lead, D] and the six weights; gate's and up's in one memory if they are to be adjacent."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((*lead, D), (H, D), (H, D), (D, H), (H,), (H,), (D,))
    made = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    if adjacent:
        made[1:3] = torch.cat(made[1:3]).chunk(2)
    return [each.requires_grad_() for each in made]


def middle(weights: Weights) -> Any:
    """By autograd, of a product without an activation."""

    def made(dy: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            gate = functional.linear(x, weights.gate, weights.gate_bias)
            up = functional.linear(x, weights.up, weights.up_bias)
            both = torch.autograd.grad(gate * up, (gate, up), dy @ weights.down)
        return torch.cat(both, 1), (gate * up).detach()

    return made


@pytest.mark.parametrize("adjacent", [False, True])
@pytest.mark.parametrize("addresses", [False, True])
@pytest.mark.parametrize("lead", [(), (4,), (2, 3), (0,)])
def test_gradients_are_autograds(lead: tuple[int, ...], addresses: bool, adjacent: bool) -> None:
    leaves = leaves_of(*lead, adjacent=adjacent)
    x, weights = leaves[0], Weights(*leaves[1:])
    gate, up = functional.linear(x, weights.gate, weights.gate_bias), functional.linear(x, weights.up, weights.up_bias)
    y = functional.linear(gate * up, weights.down, weights.down_bias)
    dy = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    want = torch.autograd.grad(y, leaves, dy)
    with torch.no_grad():
        for flags in product((False, True), repeat=7):
            found = by_middle(middle(weights), dy, x, weights[:2], Wanted(*flags), addresses=addresses)
            for got, right, flag in zip(found, want, flags, strict=True):
                assert (got is not None) == flag
                if flag:
                    torch.testing.assert_close(got, right)


def test_gate_and_up_are_halves_of_one_product() -> None:
    leaves = leaves_of(4)
    weights = Weights(*leaves[1:])
    with torch.no_grad():
        _, gate, up, *_ = by_middle(
            middle(weights), torch.ones(4, D).double(), leaves[0], weights[:2], Wanted(*[True] * 7)
        )
    assert gate is not None
    assert up is not None
    assert gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr()


def test_autocast_casts_nothing() -> None:
    leaves = leaves_of(4, dtype=torch.float32)
    weights = Weights(*leaves[1:])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = by_middle(middle(weights), torch.ones(4, D), leaves[0], weights[:2], Wanted(*[True] * 7))
        with without_autocast("cpu"), without_autocast("meta"):
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")
    assert {each.dtype for each in found if each is not None} == {torch.float32}


def test_a_trace_is_told() -> None:
    seen = []

    def look(x: Tensor) -> Tensor:
        seen.append(is_traced())
        return x + 1

    look(torch.ones(2))
    make_fx(look)(torch.ones(2))
    assert seen == [False, True]


def test_a_nested_trace_is_told() -> None:
    seen = []

    def look(x: Tensor) -> Tensor:
        seen.append(is_nested())
        return x + 1

    def outer(x: Tensor) -> Tensor:
        reenter_make_fx(look)(look(x))  # type: ignore[no-untyped-call]
        return look(x)

    make_fx(outer)(torch.ones(2))
    assert seen == [False, True, False]
    assert not is_nested()
