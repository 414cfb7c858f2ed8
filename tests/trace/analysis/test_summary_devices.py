"""Traces of other devices and profilers: Intel's launches are launches, and what is not read is refused by its name."""

from __future__ import annotations

import pytest
from support.timeline import Timeline

from mlpfusion.errors import MlpfusionError
from mlpfusion.report.trace.page import render
from mlpfusion.trace.analysis.summary import read

KERNEL = "at::native::xpu::VectorizedElementwiseKernel<8, at::native::xpu::GeluTanhFunctor<float>, int>"


def xpu(launch: str, calls: int = 3) -> Timeline:
    timeline = Timeline()
    for index in range(calls):
        start = 1000.0 + 200 * index
        timeline.call(start, 100).op("aten::gelu", start + 5, 20)
        timeline.add("xpu_runtime", launch, start + 10, 4, correlation=index + 1)
        timeline.device(KERNEL, start + 30, 8, index + 1)
    return timeline


@pytest.mark.parametrize(
    "launch",
    ["urEnqueueKernelLaunch", "urEnqueueKernelLaunchExp", "zeCommandListAppendLaunchKernel", "piEnqueueKernelLaunch"],
)
def test_a_launch_on_intel_s_devices_is_one(launch: str) -> None:
    reading = read(xpu(launch).text().encode())
    assert reading.analysis.launches.runtime_launches == {launch: 1}
    assert reading.analysis.pre_ops.time_to_first_launch == 10
    assert not [note for note in reading.notes if "API" in note]
    assert "no API calls" not in render([(reading, ())])


@pytest.mark.parametrize("launch", ["urEnqueueKernelLaunch", "urEnqueueUSMMemcpy"])
def test_a_lost_launch_on_intel_s_devices_is_told_from_a_copy(launch: str) -> None:
    timeline = xpu("urEnqueueKernelLaunch").add("xpu_runtime", launch, 1050, 2, correlation=99)
    assert read(timeline.text().encode()).integrity.lost == (launch == "urEnqueueKernelLaunch")


@pytest.mark.parametrize(
    ("category", "said"),
    [
        ("cuda_profiler_range", "range profiler"),
        ("mtia_ccp_events", "MTIA"),
        ("MTIA_runtime", "MTIA"),
        ("hpu_op", "Habana"),
    ],
)
@pytest.mark.parametrize("operators", [True, False])
def test_what_is_not_read_is_refused_by_its_name(category: str, said: str, operators: bool) -> None:
    timeline = Timeline().add(category, "something", 1010, 5)
    if operators:
        timeline.call(1000, 100).op("aten::mm", 1005, 20)
    with pytest.raises(MlpfusionError, match=said) as caught:
        read(timeline.text().encode())
    assert "\n" not in str(caught.value)


def test_operators_outside_calls_are_told_from_none_at_all() -> None:
    timeline = Timeline().call(1000, 100).op("aten::mm", 2000, 20)
    with pytest.raises(MlpfusionError, match=r"it has 1 elsewhere") as caught:
        read(timeline.text().encode())
    assert "no CPU activity" not in str(caught.value)


@pytest.mark.parametrize(("kernels", "said"), [(1, "1 kernel, 0 copies"), (2, "2 kernels, 0 copies")])
def test_one_is_not_several(kernels: int, said: str) -> None:
    timeline = Timeline().call(1000, 100)
    for index in range(kernels):
        timeline.launch("k", 1010 + index, 1050 + 10 * index, 5)
    assert said in render([(read(timeline.text().encode()), ())])
