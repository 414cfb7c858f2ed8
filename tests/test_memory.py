"""Bytes saved for backward."""

from __future__ import annotations

import pytest
import torch

from mlpfusion import backend, reference
from mlpfusion.device import detect
from mlpfusion.measure import memory
from mlpfusion.spec import MLPSpec, Workload

M, D, H = 10, 16, 24


def case(mode="training"):
    spec = MLPSpec(hidden_size=D, intermediate_size=H, dtype="float32")
    return reference.make_case(Workload(spec=spec, batch=2, seq=M // 2, mode=mode), torch.device("cpu"), seed=0)


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        # x, gate, up, act(gate) and the product
        ("eager", M * D + 4 * M * H),
        # x, gate, up and the product that the down projection keeps
        ("triton", M * D + 3 * M * H),
        ("packed", M * D + 3 * M * H),
    ],
)
def test_unique_storages_without_parameters_are_counted(name, elements):
    train = case()
    assert memory.saved_bytes(backend.load(name).bind(train.mlp), train) == 4 * elements


def test_what_is_not_measured_says_why():
    infer = case("inference")
    call = backend.load("eager").bind(infer.mlp)
    found = memory.measure(call, reference.step(call, infer), infer, detect("cpu"))
    assert found.saved_for_backward_bytes is None
    assert found.peak_bytes is None
    assert set(found.reasons) == {"saved_for_backward_bytes", "peak_bytes"}
