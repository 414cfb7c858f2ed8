"""Which results are others than right ones, and how it is said."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mlpfusion.stages.validate.judge.checks.transforms.differences import NOTHING, differs, short, worse_than_plain

RIGHT = {"y": torch.ones(3, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1.0, 1.0, 1.001], None),
        ([1.0, 1.0, 1.1], "y is off by 0.1"),
        ([0.0, 0.0, 0.0], f"y is {NOTHING}"),
        ([1.0, 1.0, float("nan")], "y is not finite"),
        ([1.0, 1.0], "y has shape (2,)"),
    ],
)
def test_a_result_is_off_by_more_than_a_hundredth_or_it_is_right(value: list[float], words: str | None) -> None:
    assert differs(RIGHT, {"y": torch.tensor(value)}, "float32") == words


def test_a_gradient_that_is_not_there_is_named() -> None:
    assert differs({"d:up": RIGHT["y"]}, RIGHT, "float32") == "there is no gradient for up"


def test_what_is_twice_as_far_off_as_eager_is_right() -> None:
    result = {"y": torch.tensor([1.0, 1.0, 1.1])}
    errors = {"y": (torch.tensor([0.0, 0.0, 0.1]), torch.tensor([0.0, 0.06, 0.0]))}
    assert differs(RIGHT, result, "float32", lambda name, value: errors[name]) is None


def test_a_dtype_is_said_as_it_is_typed() -> None:
    assert short(torch.bfloat16) == "bfloat16"


@pytest.mark.parametrize(
    ("plain", "found", "apart"),
    [
        ((1.09, 1, 1), (1, 1, 1), False),  # the plain call is off, the compiled one right
        ((1.09, 1, 1), (1.09, 1, 1), False),  # both are, alike
        ((1.09, 1, 1), (1, 1.2, 1), True),
        ((1, 1, 1), (1, 1.1, 1), True),
        ((1, 1, 1), (1, 0, 1), True),
        ((math.inf, 1, 1), (1, 1.5, 1), True),  # a plain call that is wrong is no measure
    ],
)
def test_a_result_is_apart_from_a_plain_one_if_it_is_from_what_is_right(plain: Any, found: Any, apart: bool) -> None:
    right = {"y": torch.ones(3, dtype=torch.float64)}
    exam: Any = SimpleNamespace(reference=lambda given, grad: right, kind="mlp")
    first, second = ({"y": torch.tensor(each, dtype=torch.float32)} for each in (plain, found))
    assert (worse_than_plain(exam, {}, first, second, "bfloat16") is not None) == apart


def test_a_result_that_lacks_a_gradient_or_a_row_is_apart() -> None:
    plain = {"y": torch.ones(3), "d:gate": torch.ones(3)}
    assert worse_than_plain(None, {}, plain, {"y": torch.ones(3)}, "float32") == "there is no gradient for gate"
    assert "shape" in worse_than_plain(None, {}, plain, plain | {"y": torch.ones(2)}, "float32")
