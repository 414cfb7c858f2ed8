"""The cases of a whole MLP: which sizes and rows there are, and what is unusual about the values of some."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pytest
import torch
from support import exams_made

from mlpfusion.spec import DTYPES
from mlpfusion.stages.validate.channel import Loaded
from mlpfusion.stages.validate.judge.checks import mlp_cases
from mlpfusion.stages.validate.judge.checks.mlp_cases import Case
from mlpfusion.stages.validate.judge.exam import SIZES, Sizes

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype

LOADED = Loaded(kind="mlp", described="a function")
OWN = SIZES[0]


def operands(case: Case, dtype: Dtype = "float32") -> dict[str, torch.Tensor]:
    return case.of(exams_made.exam(LOADED), dtype)


@pytest.mark.parametrize("of", ["hidden", "intermediate"])
def test_each_power_of_two_is_the_largest_that_divides_some_size(of: str) -> None:
    sizes = [case.sizes for group in mlp_cases.cases(exams_made.exam(LOADED), "float32", grad=False) for case in group]
    assert {(n := getattr(each, of)) & -n for each in sizes} >= {1 << k for k in range(8)}


def test_a_shape_that_is_judged_alone_has_errors_enough() -> None:
    assert all(math.prod(shape) * OWN.hidden >= 10_240 for shape in mlp_cases.SHAPES)


@pytest.mark.parametrize("grad", [False, True])
def test_no_case_comes_twice_and_few_rows_are_judged_together(grad: bool) -> None:
    groups = mlp_cases.cases(exams_made.exam(LOADED), "float32", grad=grad)
    every = [case for group in groups for case in group]
    assert len(set(every)) == len(every)
    few = [group for group in groups if Case(OWN, mlp_cases.FEW[0]) in group]
    assert [{case.shape for case in group} for group in few] == [set(mlp_cases.FEW_TRAINED if grad else mlp_cases.FEW)]
    assert {case.varied for case in every} == (
        {None, "large dy", "tiny dy", "all gates below 1"}
        if grad
        else {None, "large up", "large gate", "small x", "zeros in x", "all gates below 1"}
    )


def test_some_elements_of_x_are_0_and_one_row_is_nothing_else() -> None:
    x = operands(Case(OWN, (160,), "zeros in x"))["x"]
    zeros = x == 0
    assert bool(zeros[0].all())
    assert 0.05 < float(zeros[1:].double().mean()) < 0.2


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_gates_may_be_below_1_and_the_largest_just_so(dtype: Dtype) -> None:
    given = operands(Case(OWN, (160,), "all gates below 1"), dtype)
    gates = given["x"].double() @ given["wg"].double().T
    assert 0.94 < float(gates.abs().max()) < 0.99


@pytest.mark.parametrize("tile", [8, 16, 32, 64, 128])
def test_fewer_rows_follow_more_of_as_many_tiles(tile: int) -> None:
    rows = [shape[0] for shape in mlp_cases.FALLING]
    tiles = [-(-count // tile) for count in rows]
    assert rows == sorted(rows, reverse=True)
    assert any(first == second for first, second in itertools.pairwise(tiles))
    groups = mlp_cases.cases(exams_made.exam(LOADED), "float32", grad=True)
    assert [case.shape for case in groups[-1]] == list(mlp_cases.FALLING)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_sums_over_many_rows_and_of_an_interpreted_kernel_over_fewer(dtype: Dtype) -> None:
    interpreted = Loaded(kind="mlp", described="a function", kernels=1, interpreted=True)
    on_gpu = 40961 if dtype == "float32" else 16411
    for loaded, device, most in ((LOADED, "cpu", 40961), (interpreted, "cpu", 16411), (LOADED, "cuda", on_gpu)):
        exam = exams_made.exam(loaded, device=device)  # type: ignore[arg-type]
        groups = mlp_cases.cases(exam, dtype, grad=True)
        assert max(case.shape for group in groups for case in group) == (most,)


@pytest.mark.parametrize(("device", "many"), [("cpu", mlp_cases.MANY), ("cuda", mlp_cases.MANY_ON_GPU)])
def test_many_rows_are_as_many_as_the_device_is_quick_with(device: str, many: tuple[int, ...]) -> None:
    exam = exams_made.exam(LOADED, device=device)  # type: ignore[arg-type]
    rows = {
        grad: {case.shape for group in mlp_cases.cases(exam, "float32", grad=grad) for case in group}
        for grad in (False, True)
    }
    assert rows[False] & {mlp_cases.MANY, mlp_cases.MANY_ON_GPU} == {many}
    assert rows[True] >= set(mlp_cases.TRAINED)


def test_many_rows_are_judged_in_several_tiles_of_the_hidden_size_too() -> None:
    for grad in (False, True):
        groups = mlp_cases.cases(exams_made.exam(LOADED), "float32", grad=grad)
        deep = [case.sizes.hidden for group in groups for case in group if case.shape[0] >= 160 and case.sizes != OWN]
        assert any(hidden >= 4 * 128 and hidden % 128 == 0 for hidden in deep)
        assert grad or any(hidden >= 4 * 128 and hidden % 16 for hidden in deep)


def test_few_rows_have_tails_too() -> None:
    groups = mlp_cases.cases(exams_made.exam(LOADED), "float32", grad=False)
    few = [case.sizes for group in groups for case in group if case.shape == (1,) and case.sizes != OWN]
    for block in (8, 64, 256):
        assert any(sizes.hidden % block and sizes.hidden > block for sizes in few)
        assert any(sizes.intermediate % block and sizes.intermediate > block for sizes in few)


def test_gradients_are_judged_in_a_wide_layer() -> None:
    groups = mlp_cases.cases(exams_made.exam(LOADED), "float32", grad=True)
    assert max(case.sizes.hidden for group in groups for case in group) == 8192


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_sums_of_gradients_are_judged_where_16_bits_could_hold_them(dtype: Dtype) -> None:
    sizes = {case.sizes for group in mlp_cases.cases(exams_made.exam(LOADED), dtype, grad=True) for case in group}
    assert (mlp_cases.LONG[0][0] in sizes) is (dtype != "float32")


def test_a_quick_exam_has_one_group_of_each_kind_and_says_so() -> None:
    exam = exams_made.exam(LOADED, quick=True)
    quick = mlp_cases.cases(exam, "float32", grad=False)
    whole = mlp_cases.cases(exams_made.exam(LOADED), "float32", grad=False)
    assert set(quick) < set(whole)
    assert any(len(group) > 1 for group in quick)
    assert set(exam.left_out) == {
        f"all {kind} but one"
        for kind in (
            *("numbers of rows", "sizes of MLPs", "wide MLPs", "many rows of wide MLPs", "usual sizes of MLPs"),
            "scales of MLPs",
        )
    }


@pytest.mark.parametrize("grad", [False, True])
def test_shapes_that_are_asked_for_are_the_only_ones(grad: bool) -> None:
    groups = mlp_cases.cases(exams_made.exam(LOADED, shapes=((5,), (2, 3))), "float32", grad=grad)
    assert all(len(group) == 1 for group in groups)
    assert {case.shape for (case,) in groups} == {(5,), (2, 3)}
    assert {case.sizes for (case,) in groups} == {OWN, *(sizes for sizes, _ in mlp_cases.OTHERS)}


def test_operands_have_the_sizes_and_rows_of_the_case() -> None:
    given = operands(Case(Sizes(6, 10), (2, 3)))
    assert {name: tuple(tensor.shape) for name, tensor in given.items()} == {
        "x": (2, 3, 6),
        "wg": (10, 6),
        "wu": (10, 6),
        "wd": (6, 10),
        "dy": (2, 3, 6),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("varied", "name", "low", "high"),
    [
        ("large up", "wu", -4, 10),
        ("large gate", "wg", -4, 7),
        ("small x", "x", -6, -6),
        ("large dy", "dy", 16, 16),
        ("tiny dy", "dy", -12, -12),
    ],
)
def test_what_is_unusual_is_one_operand_by_powers_of_two(
    varied: mlp_cases.Varied, name: str, low: int, high: int, dtype: Dtype
) -> None:
    sizes = Sizes(8, 256)
    usual, given = (operands(Case(sizes, (256,), each), dtype) for each in (None, varied))
    assert all(torch.equal(given[each], usual[each]) for each in usual if each != name)
    if dtype == "float16" and name == "dy":
        low = high = 9 if varied == "large dy" else -6
    factors = (given[name].double().abs().amax(1) / usual[name].double().abs().amax(1)).log2().round()
    assert (int(factors.min()), int(factors.max())) == (low, high)
    row = torch.ldexp(usual[name].double(), factors[:, None])
    # float16 has no room for the least of the smallest products.
    assert torch.allclose(given[name].double(), row, rtol=0.0, atol=2.0**-24 if dtype == "float16" else 0.0)


def test_usual_sizes_are_no_powers_of_two_and_judged_together() -> None:
    groups = mlp_cases.cases(exams_made.exam(LOADED), "float32", grad=False)
    usual = [
        {case.sizes for case in group} for group in groups if {case.sizes for case in group} & {*mlp_cases.USUAL[0]}
    ]
    assert usual == [set(mlp_cases.USUAL[0])]
    assert all(max(sizes) & (max(sizes) - 1) and min(sizes) == 16 for group in mlp_cases.USUAL for sizes in group)
