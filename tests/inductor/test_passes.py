"""The pass as Inductor calls it: its identity, its failures, its backends and what they refuse."""

from __future__ import annotations

import copy

import pytest
import torch
from support.choices_made import a_choice, part
from support.passed import Gated, Packed, an_input, assert_same, operators, outcome, passed
from torch import fx
from torch.nn import functional

from mlpfusion.inductor import passes
from mlpfusion.inductor.ledger import LEDGER
from mlpfusion.inductor.passes import Pass
from mlpfusion.inductor.settings import settle
from mlpfusion.spec import MLPSpec
from mlpfusion.storage import results


def silu(g, u):
    return functional.silu(g) * u


def test_its_uuid_is_that_of_its_settings_and_of_the_passes_before_it():
    one, same, other = (Pass(settle("eager", tokens)) for tokens in (0, 0, 1))
    assert one.uuid() == same.uuid() != other.uuid()
    assert Pass(settle("eager", 0), (one,)).uuid() != one.uuid()
    assert Pass(settle("eager", 0), (one, lambda graph: None)).uuid() is None


def test_a_copy_of_a_configuration_has_the_same_pass():
    made = Pass(settle("eager", 0))
    assert copy.deepcopy({"pass": made})["pass"] is made


def test_without_settings_it_only_runs_what_was_before_it():
    seen = []
    LEDGER.clear()
    Pass(None, (seen.append,))(graph := fx.Graph())
    assert seen == [graph]
    assert LEDGER.report().graphs == 0


def test_a_graph_that_cannot_be_judged_stays_and_says_so(monkeypatch):
    def fails(cone):
        raise KeyError("no such thing")

    monkeypatch.setattr(passes, "refusal", fails)
    mlp, x = Gated(silu), an_input()
    ran = passed(mlp, x)
    (miss,) = ran.report.near_misses
    assert miss.reason == "it could not be judged: KeyError: 'no such thing'"
    assert_same(ran.values, outcome(mlp, mlp, x))


@pytest.mark.parametrize("then", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [lambda: Gated(silu, bias=True), lambda: Packed(lambda b: silu(*b.chunk(2, -1)))])
def test_our_kernels_run_in_a_graph(make, then):
    mlp, x = make(), an_input()
    ran = passed(mlp, x, using="fused", then=then)
    assert [each.backends for each in ran.report.placed] == [("fused",)]
    assert_same(ran.values, outcome(mlp, mlp, x))


def test_what_a_backend_does_not_take_stays_with_its_reason():
    mlp, x = Gated(silu, d=24, h=40), torch.randn(2, 24)
    (kept,) = passed(mlp, x, using="fused").report.kept
    assert kept.reason == "fused: hidden_size must be a multiple of 16, got 24"


def _choice(tmp_path, *parts, **spec):
    made = MLPSpec(hidden_size=32, intermediate_size=48, activation="silu", dtype="float32", **spec)
    path = tmp_path / "choice.json"
    path.write_text(results.encode(a_choice(*parts, spec=made, backends=("eager", "fused"))), encoding="utf-8")
    return f"auto:{path}"


CHOSEN = {1: None, 8: None, 9: "fused", 64: "fused", 65: None}


@pytest.mark.parametrize(("tokens", "backend"), CHOSEN.items())
def test_a_choice_decides_a_known_number_of_tokens(tmp_path, tokens, backend):
    name = _choice(tmp_path, part("eager", 1, 8), part("fused", 9, 64), part("eager", 65))
    mlp, x = Gated(silu), an_input(tokens, grad=False)
    with torch.no_grad():
        ran = passed(mlp, x, using=name)
    assert [each.backends for each in ran.report.placed] == ([] if backend is None else [(backend,)]), str(ran.report)
    assert bool(operators(ran)) is (backend is not None)
    if backend is None:
        assert ran.report.kept[0].reason == "the choice names eager in inference"


def test_a_choice_decides_an_unknown_number_as_it_runs(tmp_path):
    name = _choice(tmp_path, part("eager", 1, 8), part("fused", 9, 64), part("eager", 65))
    mlp, x = Gated(silu), an_input(16, grad=False)
    with torch.no_grad():
        ran = passed(mlp, x, using=name, dynamic=True)
    (node,) = operators(ran)
    assert node.args[9] == '[[9, 64, "fused"]]'


def test_a_choice_for_another_mlp_is_said(tmp_path):
    name = _choice(tmp_path, part("fused"), bias=True)
    (kept,) = passed(Gated(silu), an_input(), using=name).report.kept
    assert "the choice is for hidden_size 32" in kept.reason
