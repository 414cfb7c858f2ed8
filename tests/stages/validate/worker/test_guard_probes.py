"""The probe of guarded operands: writes beside them are counted on each side, and reads from there show in y."""

from __future__ import annotations

from ctypes import c_float
from typing import TYPE_CHECKING

import pytest
import torch
from support.runs_made import CPU, run_of
from torch import Tensor

from mlpfusion.stages.validate.channel import PATTERNS
from mlpfusion.stages.validate.worker import guard
from mlpfusion.stages.validate.worker.guard_probes import MARGIN, Guarded, guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

GIVEN = {
    "gate": torch.tensor([1.0, -2.0, 3.0]),
    "up": torch.tensor([2.0, 5.0, -1.0]),
    "dy": torch.tensor([1.0, 2.0, 4.0]),
}
NONE = {"outside": {}, "behind": 0, "farthest": 0, "before": 0}


@pytest.fixture(autouse=True)
def _own_allocators() -> Iterator[None]:
    yield
    guard.restore()


def beside(tensor: Tensor, start: int, count: int) -> Tensor:
    """Memory that lies `start` elements from a tensor's first, which its storage knows nothing of."""
    place = tensor.data_ptr() + start * tensor.element_size()
    return torch.frombuffer((c_float * count).from_address(place), dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_guarded_operand_is_its_original_in_a_storage_of_its_own_size(dtype: torch.dtype, pattern: str) -> None:
    tensor = torch.arange(6).view(2, 3).to(dtype)
    made = Guarded(tensor.t(), CPU, PATTERNS[pattern])
    assert torch.equal(made.tensor, tensor.t())
    assert made.tensor.dtype is dtype
    assert made.tensor.storage_offset() == 0
    assert made.tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    assert made.outside() == [0, 0]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    ("start", "count", "outside"),
    [(-1, 1, [1, 0]), (-5, 3, [3, 0]), (4, 2, [0, 2]), (-1, 6, [1, 1]), (-MARGIN, 1, [1, 0]), (MARGIN + 3, 1, [0, 1])],
)
def test_what_is_written_on_each_side_is_counted(pattern: str, start: int, count: int, outside: list[int]) -> None:
    made = Guarded(torch.ones(4), CPU, PATTERNS[pattern])
    beside(made.tensor, start, count).fill_(7.0)
    assert made.outside() == outside


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_stays_within_has_its_results_and_no_faults(pattern: str) -> None:
    results, facts = guarded(run_of(torch.mul), GIVEN, {"pattern": pattern, "grad": True})
    assert facts == NONE
    assert torch.equal(results["y"], GIVEN["gate"] * GIVEN["up"])
    assert torch.equal(results["d:gate"], GIVEN["dy"] * GIVEN["up"])
    assert torch.equal(results["d:up"], GIVEN["dy"] * GIVEN["gate"])
    assert list(guarded(run_of(torch.mul), GIVEN, {"pattern": pattern, "grad": False})[0]) == ["y"]


def test_a_write_beside_an_operand_is_counted_by_its_name() -> None:
    def writes(gate: Tensor, up: Tensor) -> Tensor:
        beside(up, 3, 2).fill_(0.0)
        beside(gate, -1, 1).fill_(0.0)
        return gate * up

    facts = guarded(run_of(writes), GIVEN, {"pattern": "odd", "grad": False})[1]
    assert facts == {**NONE, "outside": {"gate": [1, 0], "up": [0, 2]}}


def test_a_write_beside_an_own_allocation_is_counted_on_its_side() -> None:
    def writes(gate: Tensor, up: Tensor) -> Tensor:
        out = torch.empty(3)
        torch.as_strided(out, (2,), (1,), out.storage_offset() - 2).fill_(0.0)
        torch.as_strided(out, (1,), (1,), out.storage_offset() + 3).fill_(0.0)
        return torch.mul(gate, up, out=out)

    facts = guarded(run_of(writes), GIVEN, {"pattern": "odd", "grad": False})[1]
    assert facts == {**NONE, "behind": 1, "farthest": 1, "before": 2}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_read_beside_an_operand_brings_the_pattern(pattern: str) -> None:
    def reads(gate: Tensor, up: Tensor) -> Tensor:
        return gate * up + beside(gate, 3, 1)

    y = guarded(run_of(reads), GIVEN, {"pattern": pattern, "grad": False})[0]["y"]
    torch.testing.assert_close(y, GIVEN["gate"] * GIVEN["up"] + PATTERNS[pattern], equal_nan=True)
