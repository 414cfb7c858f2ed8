"""Where the time of a call went in whole traces: one record of the categories and of how the device spent a call."""

from __future__ import annotations

import pytest
from support import readings
from support.paths import DATA

from mlpfusion.trace.analysis.summary import read


def test_the_categories_of_a_call_add_up_to_its_kernel_time() -> None:
    found = readings.of(readings.many())
    times = found.breakdown
    assert times is not None
    kernels = found.analysis.kernels
    assert times.kernel_us == pytest.approx(sum(one.time_us or 0.0 for one in kernels))
    assert sum(one.count for one in times.categories) == len(kernels)
    assert sum(one.share for one in times.categories) == pytest.approx(1)
    assert not times.overlapping


@pytest.mark.parametrize(("name", "split"), [("h200_eager", True), ("cpu_eager", False)])
def test_a_device_splits_its_call_and_a_cpu_does_not(name: str, split: bool) -> None:
    found = read((DATA / f"{name}.json.gz").read_bytes()).breakdown
    assert found is not None
    assert {one.category for one in found.categories} >= {"gemm", "elementwise"}
    assert (found.split is not None) is split
