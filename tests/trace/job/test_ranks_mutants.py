"""Folders of ranks some of which are damaged: read, or refused in a line for each file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import trace_mutants
from support.raw import event, kernel, launched, step

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def exchanging() -> list[Any]:
    """Three steps of two kernels and an all-reduce."""
    made: list[Any] = []
    for index in range(3):
        start, number = 10_000 * (index + 1), 10 * index
        made += [step(index, start, 2000), event("cpu_op", "c10d::allreduce_", start + 700, 30)]
        made += launched("k", start + 10, start + 20, 500, number + 1)
        made += launched(NCCL, start + 705, start + 720, 600, number + 2, by="cudaLaunchKernelExC")
        made += [*launched("k", start + 1400, start + 1410, 300, number + 3), kernel("orphan", start + 1800, 5, 0)]
    return made


@pytest.mark.parametrize(
    "numbers", [pytest.param(range(3)), pytest.param(range(3, 60), marks=pytest.mark.full)], ids=["few", "many"]
)
def test_damaged_ranks(numbers: range, tmp_path: Path) -> None:
    assert trace_mutants.attack_jobs(exchanging(), tmp_path, numbers, seed=5) > len(numbers) / 2
