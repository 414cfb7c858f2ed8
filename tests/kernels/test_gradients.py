"""Gradients as an operator returns them come apart as they were, with the shapes foretold and no needless copy."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mlpfusion_kernels import Weights, gated_mlp
from mlpfusion_kernels.gradients import Wanted, joined, parted, shapes
from torch._inductor.utils import run_fw_bw_and_get_code

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


def test_compiled_code_returns_the_halves_as_they_lie() -> None:
    torch.compiler.reset()
    weights = [torch.randn(shape, requires_grad=True) for shape in ((32, 16), (32, 16), (16, 32))]
    x = torch.randn(3, 16)
    run = torch.compile(lambda: gated_mlp(x, Weights(*weights), "silu").sum())
    _, codes = run_fw_bw_and_get_code(run)
    backward = codes[-1]
    assert backward.count("gated_mlp_backward.default(") == 1
    assert "cpp_fused" not in backward
    gate, up = weights[0].grad, weights[1].grad
    assert gate is not None
    assert up is not None
    assert gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr()
