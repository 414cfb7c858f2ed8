"""The ledger of a call that is captured into a CUDA graph, on a CPU that says when it captures."""

from __future__ import annotations

import pytest
import torch

from mlpfusion.traffic.recording.collect import collect_first
from mlpfusion.traffic.recording.ledger import Ledgers
from mlpfusion.traffic.recording.operators import Operators


@pytest.fixture
def state(monkeypatch):
    """Whether the current stream captures."""
    made = {"capturing": False}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: made["capturing"])
    return made


def test_of_what_ran_before_a_capture_only_copies_are_kept(state):
    x, held, y = (torch.zeros(4, 4) for _ in range(3))
    ledgers = Ledgers({})
    ledgers.launch("aten::copy_", "operator", reads=[x], writes=[held])
    for capturing in (False, False, True):
        state["capturing"] = capturing
        ledgers.launch("aten::mm", "operator", reads=[held], writes=[y])
        ledgers.launch("aten::relu", "operator", reads=[y], writes=[y])
    state["capturing"] = False
    ledgers.launch("aten::clone", "operator", reads=[y], writes=[torch.empty(4, 4)])
    found = ledgers.finished()
    assert found.captured
    assert [launch.op for launch in found.launches] == ["aten::copy_", "aten::mm", "aten::relu", "aten::clone"]


def test_a_first_call_without_a_capture_has_no_ledger_of_one():
    x = torch.randn(4, 4)
    assert collect_first(lambda: x @ x, {"x": x}) is None


@torch.library.custom_op("captured_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.add(x, x)


def test_a_custom_operator_in_which_the_capture_begins_is_what_runs_inside_it(state):
    x = torch.randn(4, 4)
    ledgers = Ledgers({"x": x})
    with Operators(ledgers):
        for capturing in (False, True):
            state["capturing"] = capturing
            doubled(x)
    found = ledgers.finished()
    (launch,) = found.launches
    assert launch.inside is not None
    assert (launch.op, launch.inside[0]) == ("aten::add", "captured_tests::doubled")
