"""What API calls do: hand work to the device, wait, allocate, initialise; and a call's events with their launches."""

from __future__ import annotations

import pytest
from support.readings import many
from support.timeline import CALL

from mlpfusion.trace.calls import call
from mlpfusion.trace.calls.damage import repaired
from mlpfusion.trace.calls.link import annotated, find_calls
from mlpfusion.trace.read import kineto

LAUNCHES = [
    "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernelEx", "hipLaunchKernel", "hipExtModuleLaunchKernel",
    "cudaGraphLaunch", "hipGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync", "cuMemsetD8Async", "hipMemcpyWithStream",
]  # fmt: skip
COPIES = {"cudaMemcpyAsync", "cudaMemsetAsync", "cuMemsetD8Async", "hipMemcpyWithStream", "cudaMemcpy"}
SYNCS = ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cuEventSynchronize", "hipDeviceSynchronize"]
ALLOCATES = ["cudaMalloc", "cudaFree", "cudaHostAlloc", "hipMalloc", "cuMemCreate", "cudaMallocManaged"]
INITIALISES = ["cuModuleLoadData", "cudaStreamCreateWithFlags", "cudaGraphInstantiate", "cuLibraryLoadData"]
OTHERS = ["cudaGetDevice", "cudaEventRecord", "cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaLaunchHostFunc", ""]
EVERY = sorted({*LAUNCHES, *COPIES, *SYNCS, *ALLOCATES, *INITIALISES, *OTHERS})


@pytest.mark.parametrize("api", EVERY)
def test_what_an_api_call_does_is_read_from_its_name(api: str) -> None:
    assert call.is_launch(api) == (api in {*LAUNCHES, "cudaMemcpy"})
    assert call.is_copy(api) == (api in COPIES)
    assert call.is_sync(api) == (api in SYNCS)
    assert call.allocates(api) == (api in ALLOCATES)
    assert call.initialises(api, "api") == (api in INITIALISES)


@pytest.mark.parametrize(
    ("api", "blocks"), [("cudaMemcpy", True), ("hipMemcpyWithStream", True), ("cudaMemcpyAsync", False)]
)
def test_a_copy_that_is_not_asynchronous_blocks(api: str, blocks: bool) -> None:
    assert call.is_blocking_copy(api) is blocks


@pytest.mark.parametrize("api", ["cudaMallocAsync", "cudaFreeAsync", "cuMemAllocAsync"])
def test_memory_of_a_pool_is_no_allocation(api: str) -> None:
    assert not call.allocates(api)


def test_loading_is_initialisation_only_among_the_overhead() -> None:
    assert call.initialises("Lazy Function Loading", "overhead")
    assert not call.initialises("Lazy Function Loading", "op")
    assert not call.initialises("cuModuleLoadData", "op")


def test_a_call_has_its_work_with_launches_and_operators_around_them() -> None:
    made = many()
    trace = kineto.read(made.text().encode())
    found = find_calls(repaired(trace), annotated(trace, CALL), "cuda")
    one = found.call(1)
    assert len(one.work) == len(one.launches) == 5
    for work in one.work:
        assert work.launch.start_ns < work.event.start_ns
        assert work.owners[0].start_ns <= work.launch.start_ns
        assert work.owners[0].end_ns >= work.launch.end_ns
        assert not work.backward
    assert found.lost == 0
