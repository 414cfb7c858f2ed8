"""Operators of a call: custom ones by their schema, by what they launch inside, or not trusted."""

from __future__ import annotations

import pytest
import torch
from support.ledgers_made import H, M, case, linears, of_call, ops, trips, watch
from torch.nn import functional

from mlpfusion.traffic.recording.ledger import Ledgers
from mlpfusion.traffic.recording.operators import Operators
from mlpfusion.traffic.round_trips import flow


def test_an_unseen_backend_with_a_mutating_operator():
    made = case()
    gate, up, down = linears(made.mlp)

    def call(x):
        g = functional.linear(x, gate)
        torch.ops.ledger_tests.scale_(g, 0.5)
        return functional.linear(g * functional.linear(x, up), down)

    found = of_call(call, made)
    assert ops(found) == ["mm", "mul_", "mm", "mul", "mm"]
    assert trips(found) == (4, 8 * M * H)


def test_an_operator_without_python_inside_is_taken_by_its_schema():
    x = torch.randn(4)
    (launch,) = watch(lambda: torch.ops.ledger_opaque.twice(x), x=x).launches
    assert launch.op == "ledger_opaque::twice"
    assert (len(launch.reads), len(launch.writes)) == (1, 1)


@pytest.mark.parametrize("name", ["clear", "quiet"])
def test_an_operator_whose_schema_lies_is_caught(name):
    x = torch.randn(4)

    def call():
        x.fill_(3)
        return getattr(torch.ops.ledger_opaque, name)(x), x + 1

    found = watch(call, x=x)
    lying = next(launch for launch in found.launches if launch.op.startswith("ledger_opaque"))
    assert len(lying.writes) == 2  # its result, and the tensor that it says it only reads
    assert [value.written_by for value in flow(found).intermediates] == ["1 aten::fill_", f"2 ledger_opaque::{name}"]


def test_what_an_operator_does_behind_its_launches_is_not_trusted():
    x = torch.randn(4)

    def call():
        return torch.ops.ledger_tests.says_it_reads(x)

    found = watch(call, x=x)
    assert found.opaque == ()
    assert [launch.unknown for launch in found.launches] == [
        None,
        "it writes to a tensor without an observable launch",
    ]


def test_an_operator_that_cannot_be_watched_is_named():
    x = torch.randn(4)
    assert watch(lambda: torch.ops.ledger_opaque.twice(x), x=x).opaque == ("ledger_opaque::twice",)


def test_operators_run_in_whatever_mode_they_are_watched():
    ledgers = Ledgers({})
    with Operators(ledgers), Operators(ledgers):
        assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
