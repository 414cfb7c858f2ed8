"""The check of operands that are not contiguous, by a target that takes them for contiguous."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support import checked
from support.targets_made import verdict_of

from mlpfusion.stages.validate.judge import self_test
from mlpfusion.stages.validate.judge.checks import layouts

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "layouts": """
        up = up.detach() if not up.is_contiguous() else up
        return right(gate, up) * (1 if up.is_contiguous() and gate.is_contiguous() else 1.1)
    """,
}


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)


ANOTHER_ROUNDING = """
    def rounded(value):  # as of code for strides in another order of roundings than that for vectors
        half = value.half().float()
        return half if value.is_contiguous() else half * (1 + 2**-13)

    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gate, up):
            ctx.save_for_backward(gate, up)
            return rounded(right(gate, up))

        @staticmethod
        def backward(ctx, dy):
            with torch.enable_grad():
                leaves = [each.detach().requires_grad_() for each in ctx.saved_tensors]
                grads = torch.autograd.grad(right(*leaves), leaves, dy.contiguous())
            return tuple(each.half().float() * (1 if dy.is_contiguous() else 1 + 2**-13) * SCALE for each in grads)

    return Half.apply(gate, up)
"""


@pytest.mark.parametrize(("scale", "word"), [("1", "pass"), ("(1 if dy.is_contiguous() else 1.02)", "fail")])
def test_another_rounding_of_one_layout_is_no_wrong_layout(bench: Bench, tmp_path: Path, scale: str, word: str) -> None:
    verdict = checked.by(bench, tmp_path, "layouts", ANOTHER_ROUNDING.replace("SCALE", scale), dtypes=("float32",))
    assert {one.status for one in verdict.checks if one.name == "layouts"} == {word}


@pytest.mark.parametrize("seed", [157, 160, 187])
def test_few_gates_that_are_all_negative_are_no_fault(bench: Bench, tmp_path: Path, seed: int) -> None:
    """Every value is small then, beside the error of a sum that cancels, which code for strides makes otherwise."""
    verdict = checked.by(
        bench, tmp_path, "layouts", "return gelu(gate) * up", activation="gelu", dtypes=("float32",), seed=seed,
        quick=False,
    )  # fmt: skip
    assert {one.status for one in verdict.checks if one.name == "layouts"} == {"pass"}


APART = "gate.dim() == 2 and not gate.is_contiguous() and not up.is_contiguous() and gate.stride() != up.stride()"
ONE_STORAGE = "gate.is_contiguous() and gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr()"
ONE = "gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr()"
HALVES = f"{ONE} and gate.stride(-2) == 2 * gate.shape[-1] and gate.stride(-1) == 1"
TURNS = f"{ONE} and gate.stride(-1) == 2"
UP_FIRST = "up.storage_offset() < gate.storage_offset()"
KINDS = {
    APART: "gate half of a packed tensor and up part of a wider tensor",
    f"{ONE_STORAGE} and up.storage_offset() > gate.storage_offset() + 2048": "gate and up in one buffer with gaps",
    f"{ONE_STORAGE} and up.storage_offset() < gate.storage_offset()": "gate and up in one buffer in reverse order",
    f"{HALVES} and gate.dim() == 2 and {UP_FIRST}": "gate and up halves of one tensor, up first",
    f"{HALVES} and gate.dim() == 3 and {UP_FIRST}": "gate and up halves of one tensor in three dimensions, up first",
    f"{TURNS} and not {UP_FIRST}": "gate and up columns of one tensor in turns",
    f"{TURNS} and {UP_FIRST}": "gate and up columns of one tensor in turns, up first",
    "gate.dim() == 3 and gate.shape[1] == 1 and gate.stride(0) != 256": "gate and up the last of several tokens",
    "gate.stride() == (0, 256, 1)": "gate and up expanded along the first of three dimensions",
}


@pytest.mark.parametrize("where", KINDS)
def test_operands_that_lie_so_beside_each_other_are_judged(bench: Bench, tmp_path: Path, where: str) -> None:
    body = f"return right(gate, up) * (1.5 if not torch.is_grad_enabled() and {where} else 1)"
    verdict = checked.by(bench, tmp_path, "layouts", body, dtypes=("float32",), quick=False)
    assert verdict.word == "not valid"
    assert f"not dense: {KINDS[where]}" in verdict.headline


def test_halves_that_are_read_in_the_order_of_memory_are_named(bench: Bench) -> None:
    verdict = checked.of_control(bench, "pairs/kernels.py:halves_read_as_one", "layouts", "float32")
    assert "not dense: gate and up halves of one tensor, up first" in verdict.headline


@pytest.mark.parametrize(
    ("control", "words"),
    [
        ("strides.py:row_stride_of_gate", "gate half of a packed tensor and up part of a wider tensor"),
        ("strides.py:sum_over_tokens", "the output gradient is expanded along the second of three dimensions"),
        ("strides.py:gradients_in_memory_order", "where gate and up and the output gradient is transposed"),
        ("products.py:last_tokens", "x the last of several tokens"),
        ("products.py:one_storage_taken_for_packed", "wg and wu and wd in one buffer with gaps"),
    ],
)
def test_a_layout_that_is_read_wrongly_is_named(bench: Bench, control: str, words: str) -> None:
    target = f"{self_test.folder()}/blind/{control}"
    assert words in verdict_of(bench, target, only=("layouts",), dtypes=("float32",), quick=False).headline


def test_a_gradient_is_judged_where_operands_and_dy_are_each_of_another_layout(bench: Bench, tmp_path: Path) -> None:
    body = """
    class Mixed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gate, up):
            ctx.save_for_backward(gate, up)
            return right(gate, up)

        @staticmethod
        def backward(ctx, dy):
            gate, up = ctx.saved_tensors
            is_wrong = not (gate.is_contiguous() or up.is_contiguous() or dy.is_contiguous())
            is_wrong = is_wrong and len({gate.stride(), up.stride(), dy.stride()}) == 3
            dup = dy * gelu(gate, approximate="tanh")
            return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dup * (2 if is_wrong else 1)

    return Mixed.apply(gate, up)
    """
    verdict = checked.by(bench, tmp_path, "layouts", body, dtypes=("float32",), quick=False)
    assert "gate is half of a packed tensor and up is part of a wider tensor and the output gradient is with" in (
        verdict.headline
    )


SHIFTED = """
    def stored(value, is_dense):
        if is_dense or value.dtype is not torch.bfloat16:
            return value
        bits = value.contiguous().view(torch.int16)
        return (bits - (bits & 1 & (torch.arange(bits.numel()).view(bits.shape) % 3 > 0))).view(torch.bfloat16)

    class Stored(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gate, up):
            ctx.save_for_backward(gate, up)
            return stored(right(gate, up), gate.is_contiguous() or WHERE)

        @staticmethod
        def backward(ctx, dy):
            with torch.enable_grad():
                leaves = [each.detach().requires_grad_() for each in ctx.saved_tensors]
                grads = torch.autograd.grad(right(*leaves), leaves, dy.contiguous())
            return tuple(stored(each, dy.is_contiguous() or not WHERE) for each in grads)

    return Stored.apply(gate, up)
"""


@pytest.mark.parametrize(
    ("forward", "said"), [(True, "results are -0."), (False, "the gradient of gate is rounded to one side")]
)
def test_a_store_that_rounds_to_one_side_in_a_layout_is_told(
    bench: Bench, tmp_path: Path, forward: bool, said: str
) -> None:
    verdict = checked.by(bench, tmp_path, "layouts", SHIFTED.replace("WHERE", str(not forward)), dtypes=("bfloat16",))
    (found,) = (one for one in verdict.checks if one.name == "layouts")
    assert found.status == "fail"
    assert said in found.sentence


def test_another_rounding_of_either_sign_and_few_values_are_no_shift() -> None:
    dense = torch.linspace(1, 2, 129, dtype=torch.float64).to(torch.bfloat16)
    steps = torch.tensor([1, -1]).repeat(65)[:129].to(torch.int16)
    either = (dense.view(torch.int16) + steps).view(torch.bfloat16)
    lower = (dense.view(torch.int16) - 1).view(torch.bfloat16)
    assert layouts.shift_in_ulp(either, dense, "bfloat16") is None
    assert layouts.shift_in_ulp(-lower, -dense, "bfloat16") == pytest.approx(-1, abs=0.1)
    assert layouts.shift_in_ulp(lower[:50].repeat(4), dense[:50].repeat(4), "bfloat16") is None
    assert layouts.shift_in_ulp(lower.float(), dense.float(), "float32") is None
