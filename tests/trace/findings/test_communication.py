"""Communication that nothing hides is a finding with its cost, and who waits for it is told no faster kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.raw import api, kernel, launched, step, text
from support.timeline import GEMM

from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings

if TYPE_CHECKING:
    from mlpfusion.records.trace import Finding

NAMES = [
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_AllGather_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
]


def told(name: str, compute: int, at: int, length: int) -> dict[str, Finding]:
    """Steps of a product that runs from 20 on, and a collective."""
    made: list[Any] = []
    for call in range(5):
        start, number = 100_000 * (call + 1), 10 * call
        made.append(step(call, start, max(compute, at + length) + 100))
        made += launched(GEMM, start + 10, start + 20, compute, number + 1)
        made += [api("cudaLaunchKernelExC", start + 18, 2, number + 2)]
        made.append(kernel(name, start + at, length, number + 2, stream=20))
        made.append(api("cudaStreamSynchronize", start + 30, max(compute, at + length)))
    return {one.id: one for one in findings(read(text(made)))}


@pytest.mark.parametrize("name", NAMES)
def test_exposed_communication_costs_what_nothing_computes_beside(name: str) -> None:
    found = told(name, 400, 320, 700)["exposed_communication"]
    assert found.cost_us == 600
    assert found.share == pytest.approx(600 / 1120)
    assert "700 of 1120" in found.seen
    assert "600 µs of it while nothing computes" in found.seen


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("compute", "at", "length"), [(400, 420, 600), (1000, 900, 900), (700, 720, 300)])
def test_who_waits_for_communication_is_never_told_faster_kernels(
    name: str, compute: int, at: int, length: int
) -> None:
    bound = told(name, compute, at, length)["gpu_bound"]
    assert "hide or shrink communication first" in bound.do
    assert "make the kernels faster" not in bound.do


def test_communication_behind_compute_is_no_finding() -> None:
    found = told(NAMES[0], 2000, 100, 900)
    assert "exposed_communication" not in found
    assert "make the kernels faster" in found["gpu_bound"].do
