"""Findings: each is said of a small trace that has its trait, with the numbers, and not of one that has not."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.findings_made import COPY, FUSED, LOOKUP, every, said
from support.timeline import GELU, GEMM, MUL, Timeline

from mlpfusion.errors import MlpfusionError
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings


def test_an_ordinary_eager_trace(tmp_path: Path) -> None:
    found = said(every(), tmp_path)
    assert set(found) == {"bound_unclear", "fusable_kernels"}
    assert all(each.seen and each.means and each.do for each in found.values())


# ---- time ------------------------------------------------------------------------------------------------------------


def calls_of(lengths: list[int], runs: int = 5) -> Any:
    """Calls of these lengths, each with one product that is issued 10 µs after its start and runs `runs` µs."""
    made = Timeline()
    for index, length in enumerate(lengths):
        start = 10_000 * (index + 1)
        made.call(start, length).op("aten::mm", start + 5, 10).launch(GEMM, start + 10, start + 20, runs)
    return made


def test_a_cold_first_call_is_said(tmp_path: Path) -> None:
    found = said(calls_of([400, 100, 101, 99, 100]), tmp_path)["cold_start"]
    assert "first call took 400 µs on the host" in found.seen
    assert "(4.0 times)" in found.seen
    assert "cold_start" not in said(calls_of([104, 100, 101, 99, 100]), tmp_path)


def test_what_limits_a_call_is_said_with_the_margin(tmp_path: Path) -> None:
    found = said(calls_of([100] * 5, runs=80), tmp_path)
    assert "device/host 8.0x" in found["gpu_bound"].seen
    # 11 to the end of the launch, 78 after the kernel, all with an idle device.
    found = said(calls_of([100] * 5, runs=2), tmp_path)
    assert "host/device 44.0x" in found["overhead_bound"].seen
    assert found["overhead_bound"].cost_us == 89
    # The profiler may have doubled the host's time, so a smaller margin settles nothing.
    assert "bound_unclear" in said(calls_of([100] * 5, runs=40), tmp_path)


@pytest.mark.parametrize(
    ("issue", "expected", "ratio"),
    [(199, "bound_unclear", "1.99"), (200, "overhead_bound", "2.0"), (201, "overhead_bound", "2.01"),
     (99, "gpu_bound", "1.01"), (100, "bound_unclear", "1.0"), (150, "bound_unclear", "1.5")],
)  # fmt: skip
def test_a_ratio_has_the_digits_that_its_conclusion_needs(
    tmp_path: Path, issue: int, expected: str, ratio: str
) -> None:
    made = Timeline()
    for start in (1000, 2000, 3000):
        made.call(start, 400).op("aten::mm", start, 300).launch(GEMM, start + issue, start + 300, 100)
    found = said(made, tmp_path)
    assert f" {ratio}x" in found[expected].seen


def test_a_kernel_that_varies_is_said(tmp_path: Path) -> None:
    def vary(by: int) -> Any:
        return every(each=lambda made, start, index: made.launch("k", start + 80, start + 200, 50 + by * index))

    assert "k: 50.0 to 130.0 µs around 90.0" in said(vary(20), tmp_path)["kernel_varies"].seen
    assert "kernel_varies" not in said(vary(1), tmp_path)


def test_a_long_final_synchronise_is_said(tmp_path: Path) -> None:
    def wait(length: float) -> Any:
        return every(each=lambda made, start, index: made.api("cudaDeviceSynchronize", start + 60, length))

    found = said(wait(38), tmp_path)
    expected = "cudaDeviceSynchronize at the end of a call waits 38 of its 100 µs, 1 µs of it with an idle device"
    assert found["long_synchronise"].seen == expected
    assert "wait_inside_call" not in found
    assert "long_synchronise" not in said(wait(5), tmp_path)


def test_a_wait_between_launches_is_said(tmp_path: Path) -> None:
    made = every(each=lambda made, start, index: made.api("cudaStreamSynchronize", start + 30.5, 1))
    found = said(made, tmp_path)
    assert found["wait_inside_call"].seen.startswith("1 synchronisation between the launches")
    assert "long_synchronise" not in found


# ---- device work -----------------------------------------------------------------------------------------------------


KERNELS = st.sampled_from([GEMM, GELU, MUL, FUSED, COPY, "k", "Memset (Device)", "Memcpy DtoD (Device -> Device)",
                           "Memcpy HtoD (Pageable -> Device)"])  # fmt: skip
OCCUPANCY = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
HOST = st.sampled_from([LOOKUP, "Torch-Compiled Region: 0/0", "Torch-Compiled Region: 1/2", "_compile.compile_inner",
                        "aten::mm", "cudaStreamSynchronize", OCCUPANCY])  # fmt: skip


@settings(max_examples=rings.examples(60))
@given(
    st.lists(st.tuples(KERNELS, st.integers(0, 990), st.integers(0, 900)), min_size=1, max_size=12),
    st.lists(st.tuples(HOST, st.integers(0, 990), st.integers(0, 500)), max_size=8),
    st.integers(1, 4),
    st.sampled_from([None, "compile", "cudagraphs"]),
)
def test_any_trace_has_findings(kernels: Any, host: Any, calls: int, asked: Any) -> None:
    made = Timeline()
    for index in range(calls):
        start = 10_000 * (index + 1)
        made.call(start, 1000)
        for name, at, length in kernels[index if index == 3 else 0 :]:
            made.launch(name, start + at, start + at + 5, length)
        for name, at, length in host:
            (made.api if name.startswith("cuda") else made.op)(name, start + at, length)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(MlpfusionError):
        found = findings(read(made.write(Path(folder))), asked=asked)
        assert len({each.id for each in found}) == len(found)
        assert all(each.seen and each.means and each.do for each in found)
