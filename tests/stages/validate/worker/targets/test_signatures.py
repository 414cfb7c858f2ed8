"""Kernels are told from helpers by annotations and names."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch  # the annotations below are resolved

from mlpfusion.stages.validate.judge.exam import Asked  # noqa: TC001
from mlpfusion.stages.validate.worker.targets import signatures


def test_helpers_are_told_from_kernels_by_annotations_and_names() -> None:
    def four(x: torch.Tensor, wg: torch.Tensor, wu: torch.Tensor, wd: torch.Tensor) -> None: ...
    def maybe(gate: torch.Tensor, up: torch.Tensor | int) -> None: ...
    def flag(gate: torch.Tensor, fast: bool) -> None: ...
    def packed(x: torch.Tensor, weights: Asked, activation: str) -> None: ...
    def moved(tensor, device): ...  # type: ignore[no-untyped-def]
    def three(gate, up, out): ...  # type: ignore[no-untyped-def]

    assert [signatures.may_be_a_kernel(each) for each in (four, maybe)] == [True, True]
    assert [signatures.may_be_a_kernel(each) for each in (flag, packed, moved, three)] == [False] * 4


class Wrapped:
    def __call__(self, gate, up, scale=1.0):
        return gate * up * scale


def hides(*args, **options):
    return args


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (lambda gate, up: gate, ["gate", "up"]),
        (lambda gate, up, scale=1.0: gate, ["gate", "up"]),
        (lambda gate, up, *, scale: gate, ["gate", "up"]),
        (lambda gate, up, *more: gate, ["gate", "up"]),
        (lambda: 0, []),
        (Wrapped(), ["gate", "up"]),
        (hides, None),
        (functools.partial(lambda fast, gate, up: gate, True), ["gate", "up"]),
    ],
)
def test_operands_are_the_positional_parameters_without_a_default(found: Any, names: list[str] | None) -> None:
    assert signatures.operands(found) == names
    assert signatures.required(found) == (names or [])


@pytest.mark.parametrize(
    ("names", "does"), [(["g", "u", "act"], True), (["g", "u", "mode"], False), (["g", "act"], False)]
)
def test_the_third_may_be_the_activation(names: list[str], does: bool) -> None:
    assert signatures.takes_activation(names) is does


def test_an_operator_that_hides_its_function_is_read_by_its_schema() -> None:
    @torch.library.triton_op("mlpfusion_test::hidden", mutates_args={})
    def hidden(gate: torch.Tensor, up: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return gate * up * scale

    assert signatures.operands(hidden) == ["gate", "up"]
    assert signatures.may_be_a_kernel(hidden)
