"""Traces of the article's shape recorded on an H200: what each backend was seen to run there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlpfusion.derived import traffic
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.trace import analyse, kineto

DATA = Path(__file__).parent / "data"
ARTICLE = Workload(spec=MLPSpec(hidden_size=768, intermediate_size=3072), batch=64, seq=128)
GEMMS = ["gate_gemm", "up_gemm", "down_gemm"]
MB = {"eager": 455, "packed": 341}


def seen(backend):
    return analyse(kineto.read(DATA / f"h200_{backend}.json.gz"), device="cuda")


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
