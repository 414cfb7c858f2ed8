"""Every finding has its cost, and allocations in a call are one."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw import api, launched, step, text

from mlpfusion.report.trace.page import render
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings


def allocating(*calls: tuple[str, int], steps: int = 4, length: int = 1700) -> list[Any]:
    made = []
    for index in range(steps):
        start = 10_000 * (index + 1)
        made.append(step(index, start, length))
        at = start + 10
        for name, taken in calls:
            made.append(api(name, at, taken))
            at += taken + 5
        for one in range(4):
            made += launched("k", at + 20 * one, at + 20 * one + 8, 15, 10 * index + one + 1)
    return made


@pytest.mark.parametrize(
    "names",
    [("cudaMalloc", "cudaFree"), ("hipMalloc", "hipFree"), ("cuMemCreate", "cuMemMap", "cuMemSetAccess"),
     ("cudaMallocHost",), ("cudaHostAlloc", "cudaFreeHost"), ("hipExtMallocWithFlags",), ("cudaMallocManaged",)],
)  # fmt: skip
def test_allocation_in_a_call_is_found_with_its_time(names: tuple[str, ...]) -> None:
    made = allocating(*((name, 1200 // len(names)) for name in names))
    by_hand = sum(one["dur"] for one in made if one["name"] in names) / 4
    found = findings(read(text(made)))
    assert found[0].id == "malloc_in_call"
    assert found[0].cost_us == by_hand == 1200
    assert found[0].share == pytest.approx(1200 / 1700)
    assert all(name in found[0].seen for name in names)


@pytest.mark.parametrize(
    "name", ["cudaMallocAsync", "cudaFreeAsync", "hipMallocAsync", "cudaMemsetAsync", "cuMemcpyAsync"]
)
def test_an_allocation_from_a_pool_is_none(name: str) -> None:
    assert "malloc_in_call" not in {one.id for one in findings(read(text(allocating((name, 400)))))}


def test_findings_are_sorted_by_cost_and_small_ones_share_a_line() -> None:
    made = allocating(("cudaMalloc", 700), ("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 2))
    reading = read(text(made))
    found = findings(reading)
    costs = [one.cost_us for one in found]
    assert costs == sorted(costs, reverse=True)
    assert [one.share for one in found] == pytest.approx([cost / reading.call_us for cost in costs])
    page = render([(reading, found)])
    assert "\nmalloc_in_call: 700 µs a call, 41%\n" in page
    assert "below 1% of a call each: occupancy_query (2 µs)" in page.replace("2.00", "2")
    assert "occupancy_query:" not in page


def test_nothing_limits_a_call_that_initialises() -> None:
    steady = [one for one in allocating() if one]
    told = {one.id for one in findings(read(text(steady)))}
    assert told & {"overhead_bound", "bound_unclear", "gpu_bound"}
    for name in ("cuModuleLoadData", "cuLibraryLoadData", "hipModuleLoadDataEx", "cudaGetDeviceProperties_v2"):
        found = {one.id: one for one in findings(read(text(allocating((name, 900)))))}
        assert not {"overhead_bound", "bound_unclear", "gpu_bound"} & set(found)
        assert found["initialisation"].cost_us == 900
