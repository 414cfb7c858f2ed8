"""Traces of the article's shape recorded on an H200: what each backend was seen to run there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.bench import bench
from support.paths import DATA

from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.trace.analysis.kernels import analyse
from mlpfusion.trace.read import kineto

if TYPE_CHECKING:
    from mlpfusion.records.profile import Analysis

traffic = bench("bytes_by_role").traffic

ARTICLE = Workload(spec=MLPSpec(hidden_size=768, intermediate_size=3072), batch=64, seq=128)
GEMMS = ["gate_gemm", "up_gemm", "down_gemm"]
MB = {"eager": 455, "packed": 341}


def seen(backend):
    return recorded(f"h200_{backend}")


@pytest.mark.parametrize(
    ("backend", "roles", "memsets"),
    [
        ("eager", [*GEMMS, "activation", "mul"], 2),
        ("compile", [*GEMMS, "act_mul"], 2),
        ("compile_max_autotune", [*GEMMS, "act_mul"], 2),
        ("liger", [*GEMMS, "act_mul"], 2),
        ("hub", [*GEMMS, "act_mul"], 2),
        ("triton", [*GEMMS, "act_mul"], 2),
        ("packed", ["gate_up_gemm", "act_mul", "down_gemm"], 1),
    ],
)
def test_kernels_launches_and_bytes(backend, roles, memsets):
    found = seen(backend)
    assert found.faults == ()
    assert found.calls == 20
    kernels = [kernel for kernel in found.kernels if kernel.role != "memset"]
    assert sorted(kernel.role for kernel in kernels) == sorted(roles)
    assert kernels[-1].role == "down_gemm"
    assert (found.launches.kernels, found.launches.memsets, found.launches.memcpys) == (len(roles), memsets, 0)
    assert sum(found.launches.runtime_launches.values()) == len(roles) + memsets
    assert all(kernel.p20_us <= kernel.time_us <= kernel.p80_us for kernel in kernels)
    assert round(traffic(ARTICLE, found.kernels).derived_bytes / 1e6) == MB.get(backend, 354)


def test_eager_and_compile_call_the_same_gemms():
    names = [
        [(kernel.role, kernel.name) for kernel in seen(backend).kernels if kernel.role in GEMMS]
        for backend in ("eager", "compile", "liger", "hub", "triton")
    ]
    assert all(one == names[0] for one in names)


def test_pre_ops_of_the_compiler_are_in_compiled_rows_alone():
    for backend in ("compile", "compile_max_autotune", "compile_cudagraphs"):
        pre_ops = seen(backend).pre_ops
        assert pre_ops.dynamo_cache_lookup > 0
        assert pre_ops.compiled_graph_entry > 0
    for backend in ("eager", "liger", "hub", "triton", "packed"):
        pre_ops = seen(backend).pre_ops
        assert not pre_ops.dynamo_cache_lookup
        assert not pre_ops.compiled_graph_entry


def test_a_graph_replay_is_one_launch_of_many_kernels():
    found = seen("compile_cudagraphs")
    assert found.launches.runtime_launches["cudaGraphLaunch"] == 1
    assert found.launches.kernels >= 4


def recorded(name: str) -> Analysis:
    trace = kineto.read(DATA / f"{name}.json.gz")
    return analyse(trace, device="cpu" if name.startswith("cpu") else "cuda")


def roles(analysis: Analysis) -> list[str]:
    return [kernel.role for kernel in analysis.kernels]


# Recorded with 3 warm-ups and 20 calls (one token: 3), scrubbed: h200_* 8192x768x3072 bf16 on an NVIDIA H200 with torch
# 2.11.0+cu130; cpu_* 16x16x64 fp32 with torch 2.13.0 and Inductor's enable_kernel_profile.
THREE = ["gate_gemm", "up_gemm", "act_mul", "down_gemm"]
RECORDED = {
    "cpu_eager": ["gate_gemm", "activation", "up_gemm", "mul", "down_gemm"],
    "cpu_compile": THREE,
    "cpu_compile_training": [*THREE, *["other"] * 13],
    "h200_eager": ["memset", "gate_gemm", "activation", "memset", "up_gemm", "mul", "down_gemm"],
    "h200_eager_one_token": ["gate_gemm", "activation", "up_gemm", "mul", "down_gemm", "down_gemm"],
    "h200_compile": ["memset", "gate_gemm", "memset", *THREE[1:]],
    "h200_compile_cudagraphs": ["memcpy", "memset", "gate_gemm", "memset", *THREE[1:]],
    "h200_triton": ["memset", "gate_gemm", "memset", *THREE[1:]],
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traces(name: str) -> None:
    found = recorded(name)
    assert roles(found) == RECORDED[name]
    assert found.notes == ()
    assert found.calls == len(found.kernel_us) == (3 if name.endswith("one_token") else 20)
    assert all(kernel.time_us for kernel in found.kernels)


def test_recorded_eager_and_compile_run_the_same_products() -> None:
    names = [
        [kernel.name for kernel in recorded(name).kernels if kernel.role.endswith("gemm")]
        for name in ("h200_eager", "h200_compile", "h200_triton", "h200_compile_cudagraphs")
    ]
    assert names[0] == names[1] == names[2] == names[3]


@pytest.mark.parametrize(
    ("name", "apis"),
    [
        ("h200_eager", {"cuLaunchKernelEx": 3, "cudaLaunchKernel": 2, "cudaMemsetAsync": 2}),
        ("h200_compile", {"cuLaunchKernelEx": 3, "cuLaunchKernel": 1, "cudaMemsetAsync": 2}),
        ("h200_triton", {"cuLaunchKernelEx": 4, "cudaMemsetAsync": 2}),
        ("h200_compile_cudagraphs", {"cudaGraphLaunch": 1, "cudaLaunchKernel": 1}),
    ],
)
def test_recorded_launches(name: str, apis: dict[str, int]) -> None:
    assert recorded(name).launches.runtime_launches == apis


def test_recorded_backward_is_on_the_autograd_thread() -> None:
    found = recorded("h200_eager_training")
    forward = ["memset", "gate_gemm", "activation", "memset", "up_gemm", "mul", "down_gemm"]
    assert roles(found)[:7] == forward
    assert set(roles(found)[7:]) == {"other", "memset"}
    assert sum(kernel.decoded.kind == "gemm" for kernel in found.kernels) == 9
