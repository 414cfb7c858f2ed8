"""The checks of a whole MLP, each by a fault of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support import checked

from mlpfusion.stages.validate.judge.checks import mlp, mlp_cases
from mlpfusion.stages.validate.judge.checks.mlp_cases import Case
from mlpfusion.stages.validate.judge.exam import Sizes

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "mlp-values": """
        return right_mlp(x, wg, wu, wd) * 1.1
    """,
    "mlp-specials": """
        return right_mlp(x.nan_to_num(0.0), wg, wu, wd)
    """,
    "mlp-gradients": """
        return right_mlp(x, wg.detach(), wu, wd) + 0 * wg.sum()
    """,
}


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(
    WRONG, right="return right_mlp(x, wg, wu, wd)", operands="x, wg, wu, wd"
)


@pytest.mark.parametrize(("theirs", "measured"), [(10, True), (5, True), (4, False), (0, False)])
def test_eager_s_error_is_a_measure_where_it_is_right_in_half_of_the_values(theirs: int, measured: bool) -> None:
    errors = mlp.Errors()
    errors.add(Case(Sizes(8, 16), (2,)), torch.ones(10), torch.ones(theirs))
    assert errors.has_measure is measured


@pytest.mark.parametrize(
    ("rows", "elements", "largest", "too_far"),
    [
        (2, 8192, 3.9, False),  # of 2 x 128 roundings, however many elements these make
        (2, 8192, 4.1, True),
        (160, 8192, 3.9, False),  # 8192 are few themselves
        (160, 16384, 1.9, False),
        (160, 16384, 2.1, True),
        (78, 16384, 2.1, False),
        (79, 16384, 2.1, True),  # 79 x 128 = 10,112
    ],
)
def test_the_largest_of_few_errors_may_be_twice_as_far_off(
    rows: int, elements: int, largest: float, too_far: bool
) -> None:
    theirs, mine = torch.full((elements,), 0.5), torch.full((elements,), 0.5)
    mine[3] *= largest
    errors = mlp.Errors()
    errors.add(Case(Sizes(64, 128), (rows,)), mine, theirs)
    found = errors.distance("bfloat16")
    assert found.is_too_far == too_far
    assert found.ratio == pytest.approx(largest, rel=0.01)


@pytest.mark.parametrize("rows", [2, 160])
def test_the_usual_error_of_few_is_no_luck(rows: int) -> None:
    errors = mlp.Errors()
    errors.add(Case(Sizes(64, 128), (rows,)), torch.full((8192,), 1.05), torch.full((8192,), 0.5))
    assert errors.distance("bfloat16").is_too_far


SCALED = """
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, wg, wu, wd):
            ctx.save_for_backward(x, wg, wu, wd)
            return right_mlp(x, wg, wu, wd)

        @staticmethod
        def backward(ctx, dy):
            with torch.enable_grad():
                leaves = [each.detach().requires_grad_() for each in ctx.saved_tensors]
                grads = list(torch.autograd.grad(right_mlp(*leaves), leaves, dy))
            by = dict(zip(("x", "wg", "wu", "wd", "dy"), (*ctx.saved_tensors, dy)))[NAME].abs().amax()
            if not by:
                grads[1] = grads[1] ANSWER
            return tuple(grads)

    return Scaled.apply(x, wg, wu, wd)
"""


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("dy", "/ by", "where all of dy is 0, 8192 of 8192 elements of dWg are not finite"),
        ("x", "/ by", "where all of x is 0, 8192 of 8192 elements of dWg are not finite"),
        ("wu", "+ 1", "where all of wu is 0, 8192 of 8192 elements of dWg are not 0"),
    ],
)
def test_what_is_scaled_by_its_largest_element_is_judged_where_that_is_0(
    bench: Bench, tmp_path: Path, name: str, answer: str, words: str
) -> None:
    body = SCALED.replace("NAME", repr(name)).replace("ANSWER", answer)
    verdict = checked.by(bench, tmp_path, "mlp-gradients", body, "x, wg, wu, wd", dtypes=("float32",))
    assert words in verdict.headline


def test_a_tile_that_is_left_out_of_many_rows_of_a_wide_layer_is_found(bench: Bench, tmp_path: Path) -> None:
    body = """
    last = (x.shape[-1] - 1) // 32 * 32 if x.numel() // max(1, x.shape[-1]) > 150 and x.shape[-1] > 500 else None
    return right_mlp(x[..., :last], wg[:, :last], wu[:, :last], wd)
    """
    verdict = checked.by(bench, tmp_path, "mlp-values", body, "x, wg, wu, wd", dtypes=("float32",), quick=False)
    assert "as far from fp64 as eager's (limit 4x) (160 rows, hidden_size 1024, intermediate_size" in verdict.headline


@pytest.mark.parametrize("tile", [16, 64, 256, 1024, 4096])
def test_each_mode_has_a_rest_behind_tiles_of_hidden_and_of_intermediate_size(tile: int) -> None:
    for sizes in zip(*mlp_cases.IN_MODES, strict=True):
        assert any(size > tile and size % tile for size in sizes)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("wg.shape[0] > 4096", "under torch.inference_mode y is off by"),
        ("wg.shape[1] > 4096 and len(x) == 1", "(1 row, hidden_size 4544, intermediate_size 16)"),
        ("wg.shape[0] % 128 and wg.shape[0] > 1024", "(33 rows, hidden_size 72, intermediate_size 1413)"),
        ("False", ""),
    ],
)
def test_what_inference_mode_leaves_out_of_a_long_sum_is_found(
    bench: Bench, tmp_path: Path, where: str, words: str
) -> None:
    body = f"""
    if torch.is_inference_mode_enabled() and {where}:
        return right_mlp(x[..., :-8], wg[: -96, :-8], wu[: -96, :-8], wd[:, : -96]) if wg.shape[0] > 96 else x * 0
    return right_mlp(x, wg, wu, wd)
    """
    verdict = checked.by(bench, tmp_path, "inference", body, "x, wg, wu, wd", dtypes=("float32",), quick=False)
    assert verdict.word == ("not valid" if words else "valid")
    assert words in verdict.headline


def test_slices_of_eval_mode_alone_are_named(bench: Bench) -> None:
    verdict = checked.of_control(bench, "pairs/layers.py:SlicedInEval", "inference", "float32")
    assert "in eval mode y is off by" in verdict.headline
    assert "(33 rows, hidden_size 16, intermediate_size 13696)" in verdict.headline


def test_a_mode_that_breaks_at_a_size_is_a_hazard(bench: Bench, tmp_path: Path) -> None:
    body = """
    if torch.is_inference_mode_enabled() and wg.shape[0] % 2:
        raise ValueError("odd")
    return right_mlp(x, wg, wu, wd)
    """
    verdict = checked.by(bench, tmp_path, "inference", body, "x, wg, wu, wd", dtypes=("float32",), quick=False)
    assert verdict.word == "valid with hazards"
    assert "breaks under torch.inference_mode (33 rows, hidden_size 72, intermediate_size 1413): " in verdict.headline
