"""The trace that is recorded holds the calls that were asked for."""

from __future__ import annotations

import json

import torch

from mlpfusion.measure import tracer
from mlpfusion.trace.analysis.kernels import analyse
from mlpfusion.trace.read import kineto


def test_warm_up_calls_are_recorded_but_are_no_calls(tmp_path):
    path = tmp_path / "trace.json"
    weight = torch.randn(8, 8)
    tracer.record(lambda: torch.mm(weight, weight), path, calls=4, warmups=2, flush=None)
    names = [event.get("name") for event in json.loads(path.read_text())["traceEvents"]]
    assert names.count(tracer.CALL) == 4
    assert names.count(tracer.WARMUP) == 2
    found = analyse(kineto.read(path), device="cpu")
    assert found.calls == 4
    assert [kernel.name for kernel in found.kernels] == ["aten::mm"]
