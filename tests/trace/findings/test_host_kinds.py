"""Kinds of traces that people record, rebuilt small: what limits each, as the documentation argues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.raw import api, event, kernel, launched, step, text

from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings

if TYPE_CHECKING:
    from collections.abc import Callable

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CIJK = "Cijk_Alik_Bljk_BBS_BH_MT256x256x64"


def asynchronous() -> list[Any]:
    """Training whose host runs ahead: steps of 1000 launch 1200 of work each, and never wait."""
    made, free = [], 0
    for index in range(6):
        start = 10_000 + 1000 * index
        made.append(step(index, start, 1000))
        for one in range(8):
            at = start + 50 + 100 * one
            free = max(free, at + 8)
            made += launched(GEMM, at, free, 150, 100 * index + one + 1)
            free += 150
    return made


def serving() -> list[Any]:
    """Decoding by graphs: a replay of 60 kernels of 20, then the host waits for the tokens and schedules for 900."""
    made = []
    for index in range(5):
        start, number = 10_000 * (index + 1), index + 1
        made.append(event("user_annotation", f"execute_context_0(0)_generation_{index + 8}({index + 8})", start, 2500))
        made += [api("cudaGraphLaunch", start + 900, 100, number)]
        made += [kernel(f"g{one % 6}", start + 1010 + 20 * one, 20, number) for one in range(60)]
        made.append(api("cudaStreamSynchronize", start + 1010, 1210))
    return made


def exposed() -> list[Any]:
    """DDP whose all-reduces of 600 begin when the 400 of compute are over."""
    made = []
    for index in range(5):
        start, number = 10_000 * (index + 1), 10 * index
        made.append(step(index, start, 1100))
        made += launched(GEMM, start + 10, start + 20, 400, number + 1)
        made.append(event("cpu_op", "c10d::allreduce_", start + 30, 20))
        made += [api("cudaLaunchKernelExC", start + 35, 5, number + 2)]
        made += [kernel(NCCL, start + 425, 600, number + 2, stream=20)]
        made.append(api("cudaStreamSynchronize", start + 60, 970))
    return made


def rocm() -> list[Any]:
    """MI300X: an item() after each product, by a blocking copy that waits for it."""
    made = []
    for index in range(4):
        start = 10_000 * (index + 1)
        made.append(step(index, start, 4300))
        for one in range(4):
            at, number = start + 1050 * one + 10, 100 * index + 10 * one
            made += launched(CIJK, at, at + 15, 1000, number + 1, by="hipExtModuleLaunchKernel")
            made.append(event("cpu_op", "aten::item", at + 10, 1035))
            made.append(api("hipMemcpyWithStream", at + 12, 1030, number + 2))
            made.append(event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at + 1020, 5, pid=0, tid=7,
                              correlation=number + 2))  # fmt: skip
    return made


def intel() -> list[Any]:
    """XPU: four products by oneDNN of 500, and an item() at the end by a copy and a wait for its event."""
    made = []
    for index in range(4):
        start, number = 10_000 * (index + 1), 100 * index
        made.append(step(index, start, 2150))
        for one in range(4):
            made.append(xpu("urEnqueueKernelLaunch", start + 20 * one + 10, 8, number + one + 1))
            made.append(kernel("gemm_kernel", start + 30 + 500 * one, 500, number + one + 1))
        made.append(event("cpu_op", "aten::item", start + 100, 2000))
        made.append(xpu("urEnqueueUSMMemcpy", start + 105, 10, number + 9))
        made.append(event("gpu_memcpy", "Memcpy D2M (Device -> Memory)", start + 2032, 4, pid=0, tid=7,
                          correlation=number + 9))  # fmt: skip
        made += [xpu("urEventWait", start + 120, 1920, 0), xpu("urEnqueueKernelLaunch", start + 2110, 8, number + 10)]
        made.append(kernel("at::native::xpu::FillFunctor<float>", start + 2122, 5, number + 10))
    return made


def xpu(name: str, start: float, length: float, correlation: int) -> Any:
    return event("xpu_runtime", name, start, length, correlation=correlation)


def sampling() -> list[Any]:
    """One token of 900, recorded with stacks: the sampler takes 700 in Python, and the device waits for it."""
    made = []
    for index in range(4):
        start = 10_000 * (index + 1)
        made.append(step(index, start, 900))
        made.append(event("python_function", "/home/me/serve/sampler.py(88): sample", start + 150, 700))
        for one in range(2):
            made += launched(GEMM, start + 20 + 840 * one, start + 30 + 840 * one, 25, 10 * index + one + 1)
    return made


def starting() -> list[Any]:
    """A profiler around the first step: modules are loaded for 3000 of 5000."""
    made = [step(0, 10_000, 5000)]
    made += [api("cuModuleLoadData", 10_100 + 700 * one, 600) for one in range(5)]
    for one in range(5):
        made += launched(GEMM, 13_700 + 100 * one, 13_710 + 100 * one, 60, one + 1)
    return made


def host_alone() -> list[Any]:
    made = []
    for index in range(3):
        start = 1000 * (index + 1)
        made += [step(index, start, 900), event("cpu_op", "aten::mm", start + 10, 300)]
        made.append(event("cpu_op", "aten::gelu", start + 400, 100))
    return made


def small() -> list[Any]:
    """Eager inference of one token: 20 kernels of 4, one launched every 50."""
    made = []
    for index in range(4):
        start = 10_000 * (index + 1)
        made.append(step(index, start, 1000))
        for one in range(20):
            made += launched("their_kernel", start + 50 * one + 10, start + 50 * one + 16, 4, 100 * index + one + 1)
    return made


@pytest.mark.parametrize(
    ("kind", "gpu", "first", "seen", "share"),
    [
        (asynchronous, "NVIDIA H100 80GB HBM3", "gpu_bound", "the device idles 0% of the call", 1.0),
        (serving, "NVIDIA H100 80GB HBM3", "bound_unclear", "51% while the host works", None),
        (exposed, "NVIDIA H100 80GB HBM3", "gpu_bound", "the device idles", 1000 / 1100),
        (rocm, "AMD Instinct MI300X", "gpu_bound", "µs of waits", 4020 / 4300),
        (intel, "Intel(R) Data Center GPU Max 1550", "gpu_bound", "µs of waits", 2009 / 2150),
        (sampling, "NVIDIA H100 80GB HBM3", "overhead_bound", "was in: sampler.py(88): sample 700 µs", 0.93),
        (starting, "NVIDIA H100 80GB HBM3", "initialisation", "5x cuModuleLoadData, 3000 µs", 0.6),
        (small, "NVIDIA A100-SXM4-80GB", "overhead_bound", "host/device 1", None),
    ],
)  # fmt: skip
def test_what_a_kind_of_trace_is_said_to_be(
    kind: Callable[[], list[Any]], gpu: str, first: str, seen: str, share: float | None
) -> None:
    found = findings(read(text(kind(), gpu=gpu)))
    assert found[0].id == first
    assert seen in found[0].seen
    assert share is None or found[0].share == pytest.approx(share, abs=0.03)
    verdicts = {one.id for one in found} & {"gpu_bound", "overhead_bound", "bound_unclear"}
    assert len(verdicts) == (first != "initialisation")


def test_a_step_that_waits_for_an_all_reduce_is_not_told_to_make_kernels_faster() -> None:
    found = findings(read(text(exposed())))
    assert found[0].do == (
        "hide or shrink communication first: 600 of 1000 µs of the device it runs alone; "
        "faster kernels shorten none of it"
    )


def test_a_wait_for_an_event_of_intels_is_no_work_of_the_host() -> None:
    found = {one.id: one for one in findings(read(text(intel(), gpu="Intel(R) Data Center GPU Max 1550")))}
    assert "urEventWait" not in found["gpu_bound"].seen
    assert "1 synchronisation between the launches of a call, 1920 µs in all" in found["wait_inside_call"].seen


def test_graphs_are_not_advised_where_graphs_run() -> None:
    for one in findings(read(text(serving()))):
        assert "CUDA graph" not in one.do
        assert one.id != "many_small_kernels"


def test_a_trace_of_the_host_alone_has_no_verdict() -> None:
    reading = read(text(host_alone(), gpu="").replace(b'{"id": 0, "name": ""}', b""), device="cpu")
    assert findings(reading) == ()
    assert reading.device_use is None
