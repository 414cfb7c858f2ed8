"""Whatever is damaged in a trace: no finding without its numbers, and none out of order."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings, trace_mutants
from support.raw import api, event, kernel, launched, step, text

from mlpfusion.errors import MlpfusionError
from mlpfusion.report.trace.page import render
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings

ODD: tuple[Any, ...] = (None, -1, 0, 1.5, "x", "", "12", [], {}, True, 2**70, 1e-9, -1000, 10**7)
NAMES = ("k", "ProfilerStep#7", "cudaMalloc", "cudaStreamSynchronize", "cudaGraphLaunch", "cuModuleLoadData",
         "ncclDevKernel_AllReduce", "Memcpy DtoH (Device -> Pageable)", "aten::mm")  # fmt: skip
KEYS = ("ts", "dur", "name", "cat", "tid", "pid", "args", "correlation", "-", "+")


def training() -> list[Any]:
    """Four steps that allocate, load, compute, communicate, copy and wait."""
    made: list[Any] = []
    for index in range(4):
        start, number = 10_000 * (index + 1), 100 * index
        made += [step(index, start, 9000), event("cpu_op", "aten::mm", start + 40, 400)]
        made += [api("cudaMalloc", start + 50, 200), api("cuModuleLoadData", start + 300, 100)]
        for one in range(4):
            made += launched(f"k{one}", start + 500 + 20 * one, start + 600 + 300 * one, 250, number + one + 1)
        made += [api("cudaGraphLaunch", start + 700, 30, number + 20)]
        made += [kernel("g", start + 2000 + 200 * one, 150, number + 20) for one in range(3)]
        made += [api("cudaLaunchKernelExC", start + 800, 5, number + 30)]
        made += [kernel("ncclDevKernel_AllReduce", start + 3000, 900, number + 30, stream=20)]
        made += [api("cudaStreamSynchronize", start + 900, 4000)]
        made += launched("last", start + 5000, start + 5010, 300, number + 40)
    return made


SIZE = len(training())


@settings(max_examples=rings.examples(150), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, SIZE - 1), st.sampled_from(KEYS), st.sampled_from((*ODD, *NAMES))), max_size=12),
    st.sampled_from((None, "compile", "cudagraphs")),
)
def test_no_finding_without_its_numbers(damage: list[tuple[int, str, Any]], asked: Any) -> None:
    made = [{**one, "args": dict(one["args"])} for one in training()]
    for index, key, value in damage:
        at = index % len(made)
        if key == "-" and len(made) > 1:
            del made[at]
        elif key == "+":
            made.append({**made[at], "name": str(value)})
        elif key == "correlation" and isinstance(made[at].get("args"), dict):
            made[at]["args"]["correlation"] = value
        else:
            made[at][key] = value
    with contextlib.suppress(MlpfusionError):
        reading = read(text(made))
        found = findings(reading, asked=asked)
        for one in found:
            assert math.isfinite(one.cost_us)
            assert one.cost_us >= 0
            assert math.isfinite(one.share)
            assert re.search(r"\d", one.seen) or one.id == "no_cuda_graph"
            assert one.means
            assert one.do
        costs = [one.cost_us for one in found]
        assert costs == sorted(costs, reverse=True)
        use = reading.device_use
        if use is not None:
            whose = use.own_us + use.others_us + use.orphans_us + use.idle_us
            causes = use.working_us + use.waiting_us + use.final_wait_us + use.launched_us
            assert math.isclose(whose, use.length_us, abs_tol=0.01)
            assert math.isclose(causes, use.idle_us, abs_tol=0.01)
            assert min(use.own_us, use.others_us, use.orphans_us, use.idle_us, use.waiting_us, use.launched_us) >= 0
        assert render([(reading, found)])


@pytest.mark.full
def test_damaged_traces_of_every_kind() -> None:
    """300 of the 10,000 that were tried: recorded traces and the one above, with events and bytes changed."""
    sources = [*trace_mutants.recorded(), training()]
    assert trace_mutants.attack(sources, range(300), seed=17) > 200


def test_a_few_damaged_traces() -> None:
    assert trace_mutants.attack([training()], range(8), seed=3) > 0
