"""The host's waits: synchronisations, blocking copies and launches into a full queue are not its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.raw import api, event, kernel, launched, step, text

from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings

if TYPE_CHECKING:
    from mlpfusion.records.trace import Finding


def found(made: list[Any]) -> tuple[Any, dict[str, Finding]]:
    reading = read(text(made))
    return reading, {one.id: one for one in findings(reading)}


def waiting(name: str, *, steps: int = 4) -> list[Any]:
    """Steps of 10,000: a kernel of 4000, a wait for it until 4100, ten more kernels of 400 and their end at 8300."""
    made = []
    for index in range(steps):
        start, number = 100_000 + 10_000 * index, 100 * index
        made.append(step(index, start, 8300))
        made += launched("k", start + 20, start + 30, 4000, number + 1)
        made.append(event("cpu_op", "aten::item", start + 40, 4070))
        made.append(api(name, start + 50, 4050, number + 50))
        if "emcpy" in name:
            made.append(event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", start + 4050, 10, pid=0, tid=7,
                              correlation=number + 50))  # fmt: skip
        for one in range(10):
            made += launched("k", start + 4150 + 10 * one, start + 4300 + 400 * one, 400, number + 2 + one)
    return made


@pytest.mark.parametrize(
    "name",
    ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "hipStreamSynchronize",
     "cudaMemcpy", "hipMemcpyWithStream", "cuMemcpyDtoH_v2"],
)  # fmt: skip
def test_a_wait_is_not_issuing(name: str) -> None:
    reading, told = found(waiting(name))
    assert (reading.host_use.issue_us, reading.host_use.waiting_us) == (4240 - 4050, 4050)
    assert "overhead_bound" not in told
    assert "190 µs of work (under the profiler, without 4050 µs of waits)" in told["gpu_bound"].seen


def test_a_host_that_waits_for_most_of_a_call_is_not_the_limit_although_the_device_idles_then() -> None:
    """Each of the small copies is waited for: the device idles in the latency of the waits."""
    made = []
    for index in range(3):
        start = 10_000 * (index + 1)
        made.append(step(index, start, 4010))
        for one in range(20):
            at, number = start + 10 + 200 * one, 1000 * index + one + 1
            made += launched("k", at, at + 8, 20, number)
            made.append(api("cudaStreamSynchronize", at + 6, 180))
    reading, told = found(made)
    assert reading.device_use.waiting_us == 19 * (186 - 28)  # to its kernel's end each wait is of use
    assert "overhead_bound" not in told
    assert told["wait_inside_call"].cost_us == reading.device_use.waiting_us


def full_queue(blocked: int, of: int = 400) -> list[Any]:
    """A step of `of` launches of 5, but for every so many one of 300; kernels of 100 that never end the queue."""
    made = []
    at, free = 100_000, 100_010
    every = of // blocked
    for index in range(3):
        begin, events = at, []
        for one in range(of):
            taken = 300 if one % every == every - 1 else 5
            number = 10_000 * index + one + 1
            free = max(free, at + 6)
            events += [api("cudaLaunchKernel", at, taken, number), kernel("k", free, 100, number)]
            free += 100
            at += taken + 2
        made += [step(index, begin, at - begin), *events]
    return made


def test_launches_into_a_full_queue_are_waits() -> None:
    reading, told = found(full_queue(100))
    assert reading.host_use.blocked == 100
    # All but the last one of them begin and end before the last launch begins.
    assert reading.host_use.waiting_us == pytest.approx(99 * 300, abs=1)
    assert "overhead_bound" not in told
    assert "gpu_bound" in told


def test_a_long_launch_beside_an_idle_device_is_the_hosts_own() -> None:
    made = []
    for index in range(3):
        start = 10_000 * (index + 1)
        made.append(step(index, start, 5000))
        for one in range(20):
            number = 100 * index + one + 1
            taken = 1000 if one == 10 else 5
            made += [api("cudaLaunchKernel", start + 100 * one + 1000 * (one > 10), taken, number)]
            made += [kernel("k", made[-1]["ts"] + taken + 2, 10, number)]
    reading, told = found(made)
    assert (reading.host_use.blocked, reading.host_use.waiting_us) == (0, 0)
    assert "overhead_bound" in told
    assert "cudaLaunchKernel 10" in told["overhead_bound"].seen  # what the host did, by name


def test_a_wait_on_a_thread_that_launches_nothing_is_no_wait_of_the_call() -> None:
    made = waiting("cudaStreamSynchronize")
    for one in made:
        if one["name"] == "cudaStreamSynchronize":
            one["tid"] = 77  # a watchdog
    assert found(made)[0].host_use.waiting_us == 0


def test_what_the_host_did_while_the_device_idled_is_named() -> None:
    made = []
    for index in range(3):
        start = 10_000 * (index + 1)
        made.append(step(index, start, 9000))
        made.append(
            event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, 6000)
        )
        made.append(event("cpu_op", "aten::stack", start + 1000, 1500))
        made += launched("k", start + 7000, start + 7020, 300, index + 1)
    reading, told = found(made)
    did = {one.name: one.us for one in reading.device_use.did}
    assert did["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] == 4500
    assert did["aten::stack"] == 1500
    assert sum(did.values()) == pytest.approx(reading.device_use.working_us)
    assert "enumerate(DataLoader)" in told["overhead_bound"].seen
    assert told["overhead_bound"].cost_us == pytest.approx(reading.device_use.working_us)


def test_a_device_that_never_idles_is_not_kept_waiting_by_a_slow_host() -> None:
    """The host takes three times as long as its own kernels, but other streams' work fills the device."""
    made = []
    for index in range(4):
        start = 10_000 * (index + 1)
        made.append(step(index, start, 9000))
        made += launched("k", start + 8000, start + 8010, 500, 10 * index + 1)
        made += [kernel("collective", start, 10_000, 10 * index + 2, stream=20)]
        made += [api("cudaLaunchKernel", start - 500, 4, 10 * index + 2, tid=5)]
    reading, told = found(made)
    assert reading.idle_share == 0
    assert "overhead_bound" not in told
    assert "gpu_bound" in told


def test_a_long_launch_without_any_work_is_no_wait() -> None:
    """Its calls ran nothing: work is elsewhere in the trace, and launched nowhere."""
    made = [step(index, 10_000 * index, 9000) for index in range(1, 4)]
    made += [api("cudaLaunchKernel", 10_000 * index + 100, 4000, 0) for index in range(1, 4)]
    made.append(kernel("k", 90_000, 10, 7))
    found = read(text(made)).host_use
    assert found is not None
    assert (found.blocked, found.waiting_us) == (0, 0)


def copying(kind: str, api_length: float, name: str = "cudaMemcpyAsync") -> list[Any]:
    """Steps of 2200: a kernel of 1900, a copy behind it, whose call takes so long, and a last kernel."""
    made = []
    for index in range(1, 5):
        start, number = 10_000 * index, 10 * index
        made += [step(index, start, 2200), *launched("k", start + 10, start + 20, 1900, number + 1)]
        made.append(api(name, start + 30, api_length, number + 2))
        made.append(event("gpu_memcpy", f"Memcpy DtoH (Device -> {kind})", start + 1930, 10, pid=0, tid=7,
                          correlation=number + 2))  # fmt: skip
        made += launched("k", start + 2050, start + 2060, 20, number + 3)
    return made


@pytest.mark.parametrize("name", ["cudaMemcpyAsync", "hipMemcpyAsync", "cuMemcpyDtoHAsync_v2"])
def test_a_copy_of_pageable_memory_that_returns_when_it_is_done_is_a_wait(name: str) -> None:
    """The host's way is not the 1920 µs that it stands in the copy."""
    reading, told = found(copying("Pageable", 1920, name))
    assert reading.host_use.waiting_us == 1920
    assert reading.host_use.blocked == 0
    assert "gpu_bound" in told


@pytest.mark.parametrize(("kind", "api_length"), [("Pinned", 1920), ("Pageable", 8), ("Pageable", 1500)])
def test_other_copies_are_none(kind: str, api_length: float) -> None:
    assert found(copying(kind, api_length))[0].host_use.waiting_us == 0
