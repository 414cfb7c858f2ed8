"""Rates by shape are work by hand over the time of an operator's kernels, and nothing is above what a card can do."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.raw import api, event, kernel, step, text
from support.timeline import GEMM, MUL, SPLIT_K

from mlpfusion.trace.analysis.rates import load_of, peaks_of
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.read.kineto import Event

if TYPE_CHECKING:
    from mlpfusion.records.breakdown import Rate

BF16, FLOAT, NUMBER = "c10::BFloat16", "float", "Scalar"


def rates(*operators: tuple[str, Any, Any, list[tuple[str, float]]], gpu: str = "NVIDIA H200") -> dict[str, Rate]:
    """Of three calls of operators: name, dimensions, types, and kernels with their time."""
    made: list[Any] = []
    for call in range(3):
        start, number = 100_000 * (call + 1), 0
        made.append(step(call, start, 90_000))
        for place, (name, dims, types, kernels) in enumerate(operators):
            at = start + 1000 * place + 10
            made.append(event("cpu_op", name, at, 900, **{"Input Dims": dims, "Input type": types}))
            for one, length in kernels:
                number += 1
                identity = 1000 * call + number
                made.append(api("cudaLaunchKernel", at + 10 * number, 4, identity))
                made.append(kernel(one, start + 20_000 + 1000 * number, length, identity))
    found = read(text(made, gpu)).breakdown
    assert found is not None
    return {one.operator: one for one in found.rates}


LENGTH = st.integers(1, 4096)


@given(LENGTH, LENGTH, LENGTH, st.integers(1, 900))
def test_a_product_is_2mnk_over_the_time_of_all_its_kernels(m: int, n: int, k: int, length: int) -> None:
    found = rates(("aten::mm", [[m, k], [k, n]], [BF16, BF16], [(GEMM, length), (SPLIT_K, 3)]))["aten::mm"]
    assert (found.unit, found.shape, found.dtype, found.work) == ("FLOP", (m, n, k), "bfloat16", 2 * m * n * k)
    assert found.us == length + 3
    assert found.per_second == pytest.approx(2 * m * n * k / ((length + 3) * 1e-6))
    assert found.peak_share == pytest.approx(found.per_second / 989e12)
    assert found.above_peak == (found.per_second > 989e12)


def test_operators_of_one_shape_are_one_row() -> None:
    one = ("aten::mm", [[512, 256], [256, 128]], [BF16, BF16], [(GEMM, 10)])
    slower = (*one[:3], [(GEMM, 30)])
    found = rates(one, slower)["aten::mm"]
    assert (found.count, found.us) == (2, 20)


@pytest.mark.parametrize(
    ("name", "dims", "types", "moved", "shape"),
    [
        ("gelu", [[64, 32], []], [BF16, ""], 2 * 2 * 64 * 32, (64, 32)),
        ("mul", [[64, 32], [64, 32]], [BF16, BF16], 3 * 2 * 64 * 32, (64, 32)),
        ("mul", [[64, 32], []], [BF16, "double"], 2 * 2 * 64 * 32, (64, 32)),
        ("add", [[64, 1], [32], []], [BF16, BF16, NUMBER], 2 * (64 + 32 + 64 * 32), (64, 32)),
        ("mul", [[64, 32], [64, 32]], [BF16, FLOAT], (2 + 4 + 4) * 64 * 32, (64, 32)),
        ("mul", [[64, 32], [64, 32]], ["long int", FLOAT], (8 + 4 + 4) * 64 * 32, (64, 32)),
        ("add_", [[64, 32], [64, 32], []], [FLOAT, BF16, NUMBER], (4 + 4 + 2) * 64 * 32, (64, 32)),
        ("copy_", [[64, 32], [64, 32], []], [BF16, FLOAT, ""], (2 + 4) * 64 * 32, (64, 32)),
        ("fill_", [[64, 32], []], [BF16, NUMBER], 2 * 64 * 32, (64, 32)),
        ("gelu_backward", [[8, 4], [8, 4], []], [BF16, BF16, ""], 3 * 2 * 32, (8, 4)),
    ],
)
def test_bytes_of_each_input_once_and_of_the_result(
    name: str, dims: Any, types: Any, moved: int, shape: tuple[int, ...]
) -> None:
    found = rates((f"aten::{name}", dims, types, [(MUL, 2)]))[f"aten::{name}"]
    assert (found.unit, found.work, found.shape) == ("bytes", moved, shape)
    assert found.per_second == pytest.approx(moved / 2e-6)
    assert found.peak_share == pytest.approx(moved / 2e-6 / 4.8e12)


@pytest.mark.parametrize(
    ("name", "dims", "types"),
    [
        ("mul", [[4], [3]], [FLOAT, FLOAT]),  # do not broadcast
        ("mul", [[4]], ["c10::complex<float>"]),
        ("mul", [[4], [4]], [FLOAT]),
        ("mul", [[], []], [FLOAT, FLOAT]),
        ("mul", [[0, 4], [4]], [FLOAT, FLOAT]),
        ("mm", [[4, 3], [2, 5]], [FLOAT, FLOAT]),
        ("bmm", [[4, 3], [2, 5]], [FLOAT, FLOAT]),
        ("softmax", [[4, 3]], [FLOAT]),
        ("mul", [[-4, 3]], [FLOAT]),
        ("mm", [[-4, 3], [3, -5]], [FLOAT, FLOAT]),
        ("mul", [[2**40] * 60], [FLOAT]),
        ("mm", [[2**400, 3], [3, 5]], [FLOAT, FLOAT]),
    ],
)
def test_what_the_dimensions_do_not_say_has_no_rate(name: str, dims: Any, types: Any) -> None:
    operator = Event(f"aten::{name}", "op", 0, 1, 0, 1, None, tuple(map(tuple, dims)), tuple(types))
    assert load_of(operator) is None


def test_a_batch_is_a_product_for_each() -> None:
    found = rates(("aten::bmm", [[6, 8, 4], [6, 4, 2]], [BF16, BF16], [(GEMM, 5)]))["aten::bmm"]
    assert (found.shape, found.work) == ((6, 8, 2, 4), 2 * prod((6, 8, 2, 4)))


@pytest.mark.parametrize(
    ("gpu", "known"),
    [("NVIDIA H200", True), ("NVIDIA A100-SXM4-80GB", True), ("NVIDIA H200 MIG 1g.18gb", False), ("a card", False)],
)
def test_a_share_of_the_peak_needs_a_whole_card_that_is_known(gpu: str, known: bool) -> None:
    assert (peaks_of(gpu) is not None) == known
    found = rates(("aten::mm", [[64, 64], [64, 64]], [BF16, BF16], [(GEMM, 10)]), gpu=gpu)["aten::mm"]
    assert (found.peak_share is not None) == known


def test_no_peak_is_known_of_other_types() -> None:
    assert rates(("aten::mm", [[64, 64], [64, 64]], [FLOAT, FLOAT], [(GEMM, 10)]))["aten::mm"].peak_share is None


def test_a_rate_above_the_peak_is_an_error() -> None:
    found = rates(
        ("aten::mm", [[8192, 8192], [8192, 8192]], [BF16, BF16], [(GEMM, 100)]),
        ("aten::mul", [[8192, 8192]] * 2, [BF16, BF16], [(MUL, 10)]),
    )
    assert all(one.above_peak for one in found.values())
