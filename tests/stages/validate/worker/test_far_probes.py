"""The probe of far offsets: what is wrong beyond a boundary is counted, and its first element named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support.runs_made import run_of

from mlpfusion.stages.validate.worker import far_probes

if TYPE_CHECKING:
    from torch import Tensor

ROWS, N, BOUNDARY = 4, 8, 100
GIVEN = {name: torch.linspace(1, 2, ROWS * N).view(ROWS, N) for name in ("gate", "up", "dy")}


def right(gate: Tensor, up: Tensor) -> Tensor:
    return gate * up


def nothing_behind(gate: Tensor, up: Tensor) -> Tensor:
    y = gate * up
    return torch.where(torch.arange(y.numel()).view(y.shape) < BOUNDARY, y, 0 * y)


@pytest.mark.parametrize("grad", [False, True])
def test_what_repeats_the_first_block_is_right(grad: bool) -> None:
    results, facts = far_probes.far(run_of(right), GIVEN, {"boundary": BOUNDARY, "grad": grad})
    assert facts["rows"] * N > BOUNDARY + ROWS * N
    assert set(facts["off"].values()) == {(0, None)}
    assert torch.equal(results["y"], GIVEN["gate"] * GIVEN["up"])
    assert (len(results) == 3) is grad


def test_what_is_wrong_behind_the_boundary_is_counted_from_its_first_element() -> None:
    _, facts = far_probes.far(run_of(nothing_behind), GIVEN, {"boundary": BOUNDARY, "grad": True})
    count = facts["rows"] * N - BOUNDARY
    assert facts["off"] == dict.fromkeys(("y", "d:gate", "d:up"), (count, BOUNDARY))


def test_halves_of_one_tensor_are_not_dense_and_right() -> None:
    seen: list[tuple[int, ...]] = []

    def noting(gate: Tensor, up: Tensor) -> Tensor:
        seen.append(gate.stride())
        return gate * up

    options = {"boundary": BOUNDARY, "grad": False, "packed": True}
    results, facts = far_probes.far(run_of(noting), GIVEN, options)
    assert seen == [(2 * N, 1)]
    assert facts["off"] == {"y": (0, None)}
    assert torch.equal(results["y"], GIVEN["gate"] * GIVEN["up"])
