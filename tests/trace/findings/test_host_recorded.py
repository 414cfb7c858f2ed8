"""What is found in the recorded traces: each trait that they have, and none that they have not."""

from __future__ import annotations

import pytest
from support.paths import DATA

from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h200_eager", {"gpu_bound", "memset_before_gemm", "fusable_kernels"}),
        ("h200_compile", {"bound_unclear", "memset_before_gemm", "already_fused"}),
        ("h200_compile_cudagraphs", {"bound_unclear", "memset_before_gemm", "extra_copies", "already_fused"}),
        ("h200_triton", {"bound_unclear", "memset_before_gemm", "already_fused"}),
        ("h200_eager_training", {"overhead_bound", "memset_before_gemm", "fusable_kernels"}),
        ("h200_eager_one_token", {"overhead_bound", "fusable_kernels"}),
        ("cpu_eager", set()),
        ("cpu_compile", set()),
    ],
)
def test_recorded_traces(name: str, expected: set[str]) -> None:
    reading = read(DATA / f"{name}.json.gz")
    assert {finding.id for finding in findings(reading)} == expected


def test_recorded_traces_ran_what_was_asked_for() -> None:
    for name, asked in (("h200_compile", "compile"), ("h200_compile_cudagraphs", "cudagraphs")):
        found = findings(read(DATA / f"{name}.json.gz"), asked=asked)
        assert not {"eager_fallback", "no_cuda_graph"} & {finding.id for finding in found}
    found = findings(read(DATA / "h200_eager.json.gz"), asked="compile")
    assert "eager_fallback" in {finding.id for finding in found}
