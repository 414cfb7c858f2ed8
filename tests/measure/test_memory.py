"""Bytes saved for backward."""

from __future__ import annotations

import pytest
import torch
from support import rings

from mlpfusion import backend, reference
from mlpfusion.device import detect
from mlpfusion.measure import memory
from mlpfusion.spec import ACTIVATIONS, MLPSpec, Workload

M, D, H = 10, 16, 24


def case(mode="training", **changes):
    spec = MLPSpec(hidden_size=D, intermediate_size=H, dtype="float32", **changes)
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


@pytest.mark.parametrize("activation", rings.only_first(ACTIVATIONS))
@pytest.mark.parametrize("name", ["eager", "compile", "triton", "packed"])
def test_counting_leaves_no_graph_behind(name, activation):
    train = case(activation=activation)
    call = backend.load(name).bind(train.mlp)
    leaves = [train.x, *train.mlp.parameters()]
    memory.saved_bytes(call, train)
    for leaf in leaves:  # what accumulates its gradient lives as long as a graph that leads to it
        torch.autograd.graph.get_gradient_edge(leaf).node.metadata["before"] = True
    assert not [leaf for leaf in leaves if "before" in torch.autograd.graph.get_gradient_edge(leaf).node.metadata]


def test_what_is_not_measured_says_why():
    infer = case("inference")
    call = backend.load("eager").bind(infer.mlp)
    found = memory.measure(call, reference.step(call, infer), infer, detect("cpu"))
    assert found.saved_for_backward_bytes is None
    assert found.peak_bytes is None
    assert set(found.reasons) == {"saved_for_backward_bytes", "peak_bytes"}
