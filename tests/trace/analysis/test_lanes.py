"""When a call did what: the same parts as the pre-ops, in their order, and the kernels where they ran."""

from __future__ import annotations

import pytest
from support.paths import DATA

from mlpfusion.errors import MlpfusionError
from mlpfusion.records.profile import PreOpParts
from mlpfusion.trace.analysis import lanes, summary

PARTS = PreOpParts.__struct_fields__


@pytest.mark.parametrize("name", ["h200_eager", "h200_compile_cudagraphs", "h200_eager_training", "cpu_compile"])
def test_the_parts_are_those_of_the_pre_ops(name: str) -> None:
    path = str(DATA / f"{name}.json.gz")
    found, told = lanes.read(path), summary.read(path)
    pre_ops = told.analysis.pre_ops
    total = dict.fromkeys(PARTS, 0.0)
    for each in found.host:
        total[each.what] += each.end_us - each.start_us
    between = pre_ops.between_launches or PreOpParts()
    for part in PARTS:
        assert total[part] == pytest.approx((getattr(pre_ops, part) or 0) + (getattr(between, part) or 0), abs=1e-6)
    assert found.kernels == tuple(kernel.name for kernel in told.analysis.kernels)
    assert sorted(each.what for each in found.device) == sorted(kernel.role for kernel in told.analysis.kernels)


def test_stretches_follow_each_other_and_neighbours_differ() -> None:
    found = lanes.read(str(DATA / "h200_eager.json.gz"))
    for one, other in zip(found.host, found.host[1:], strict=False):
        assert one.end_us == pytest.approx(other.start_us)
        assert one.what != other.what
    assert found.host[0].start_us == 0
    assert [each.start_us for each in found.device] == sorted(each.start_us for each in found.device)


def test_what_is_no_trace_is_refused() -> None:
    with pytest.raises(MlpfusionError):
        lanes.read(str(DATA / "kernel_names.tsv"))
