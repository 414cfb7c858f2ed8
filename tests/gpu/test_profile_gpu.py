"""The main job on a GPU: what each backend launches at the article's shape, and that all of them are right."""

from __future__ import annotations

import gzip
import json

import msgspec
import pytest
import torch

from mlpfusion.device import detect
from mlpfusion.errors import UsageError
from mlpfusion.records.profile import PreOpParts
from mlpfusion.stages.profile import run
from mlpfusion.storage import results

GEMMS = ("gate_gemm", "up_gemm", "down_gemm")
NAMES = ("eager", "compile", "compile-max-autotune", "compile-cudagraphs", "liger", "triton", "packed", "fused")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return run.profile(run.default_workload(detect()), backends=NAMES, rounds=20, out=out), out


def rows(result):
    return {row.backend: row for row in result[0].rows}


def test_graphs_that_pytorch_records_itself_leave_those_of_the_others_alone():
    """In training at this shape cuBLAS keeps parts of sums in a workspace, which those clear; a race failed."""
    workload = msgspec.structs.replace(run.default_workload(detect()), mode="training")
    found = run.profile(workload, backends=("eager", "compile-cudagraphs", "fused"), rounds=20)
    assert [(row.backend, row.status, row.reason) for row in found.rows if row.status != "ok"] == []


def test_every_row_is_ok_and_as_accurate_as_eager(result):
    for name, row in rows(result).items():
        assert (row.status, row.reason) == ("ok", None), name
        assert row.accuracy.ratio <= 2
        assert row.accuracy.rows == 8192


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("eager", [*GEMMS, "activation", "mul"]),
        ("compile", [*GEMMS, "act_mul"]),
        ("triton", [*GEMMS, "act_mul"]),
        ("liger", [*GEMMS, "act_mul"]),
        ("packed", ["gate_up_gemm", "act_mul", "down_gemm"]),
        ("fused", ["gate_up_gemm", "down_gemm"]),
    ],
)
def test_each_backend_runs_the_kernels_it_is_known_for(result, name, roles):
    row = rows(result)[name]
    found = [kernel.role for kernel in row.kernels if kernel.role != "memset"]
    assert sorted(found) == sorted(roles)
    assert found[-1] == "down_gemm"
    assert row.launches.kernels == len(roles)
    assert row.launches.memcpys == 0
    assert row.launches.memsets == len(row.kernels) - len(roles)
    assert all(kernel.time_us > 0 for kernel in row.kernels)


def test_eager_and_compile_call_the_same_gemms(result):
    def names(name):
        return {kernel.role: kernel.name for kernel in rows(result)[name].kernels if kernel.role in GEMMS}

    assert names("eager") == names("compile")
    assert set(names("eager")) == set(GEMMS)


def test_only_compiled_rows_pay_for_dynamo_and_the_compiled_graph(result):
    for name, row in rows(result).items():
        seen = (row.pre_ops.dynamo_cache_lookup, row.pre_ops.compiled_graph_entry)
        if name.startswith("compile"):
            assert seen[0] > 0, name
            assert seen[1] > 0, name
        else:
            assert not any(seen), name


def test_parts_sum_to_the_time_before_the_first_launch(result):
    for row in rows(result).values():
        total = sum(getattr(row.pre_ops, part) or 0 for part in PreOpParts.__struct_fields__)
        assert total == pytest.approx(row.pre_ops.time_to_first_launch, abs=0.01)


def test_cuda_graphs_are_replayed_where_they_were_asked_for(result):
    row = rows(result)["compile-cudagraphs"]
    assert row.launches.runtime_launches["cudaGraphLaunch"] == 1
    assert row.clocks.graph_us is None
    assert "graph" in row.clocks.reasons["graph_us"]


def test_the_clocks_agree_with_each_other(result):
    for name, row in rows(result).items():
        clocks = row.clocks
        assert clocks.wall_us.median > clocks.kernel_us.median, name
        if clocks.graph_us is not None:
            # A replay is the kernels and the gaps between them: within 15% of what the trace says.
            assert clocks.graph_us.median == pytest.approx(clocks.kernel_us.median, rel=0.15), name
            assert clocks.graph_us.l2 == "cold"
        assert clocks.event_us.ratio_to_eager.n == 20


def test_traces_and_result_are_on_disk(result):
    profile, out = result
    assert results.load(out / results.RESULT_NAME) == profile
    for row in profile.rows:
        events = json.loads(gzip.decompress((out / row.trace_file).read_bytes()))["traceEvents"]
        assert [event["name"] for event in events if event.get("cat") == "user_annotation"].count(
            "mlpfusion.call"
        ) == run.TRACED_CALLS
        assert any(event.get("cat") == "kernel" for event in events)


def test_training_is_profiled_too(tmp_path):
    workload = msgspec.structs.replace(run.default_workload(detect()), mode="training", batch=8)
    profile = run.profile(workload, backends=["eager", "compile", "liger", "triton", "packed"], rounds=20)
    found = {row.backend: row for row in profile.rows}
    for name, row in found.items():
        assert (row.status, row.reason) == ("ok", None), name
        assert row.accuracy.ratio <= 2
        assert row.memory.saved_for_backward_bytes > 0
    assert found["triton"].memory.saved_for_backward_bytes < found["eager"].memory.saved_for_backward_bytes


def test_what_does_not_fit_on_the_card_is_refused_before_it_is_allocated():
    before = torch.cuda.memory_allocated()
    huge = msgspec.structs.replace(run.default_workload(detect()), batch=10**6)
    with pytest.raises(UsageError, match="GB free"):
        run.profile(huge, backends=["eager"])
    assert torch.cuda.memory_allocated() == before
