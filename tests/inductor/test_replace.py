"""The operator takes the cone's place: with its shape, its modes and, of an unknown number of tokens, no guard."""

from __future__ import annotations

import pytest
import torch
from support.passed import Gated, Packed, an_input, assert_same, backend, operators, outcome, passed
from torch.nn import functional

from mlpfusion.inductor.ledger import LEDGER
from mlpfusion.inductor.operator import Rule
from mlpfusion.inductor.passes import Pass
from mlpfusion.inductor.replace import decided
from mlpfusion.inductor.settings import settle


def silu(g, u):
    return functional.silu(g) * u


RULES = (Rule(1, 8, "one"), Rule(9, 64, "two"), Rule(128, None, "three"))


@pytest.mark.parametrize(
    ("tokens", "name"), [(0, "one"), (1, "one"), (8, "one"), (9, "two"), (65, None), (127, None), (128, "three")]
)
def test_a_known_number_of_tokens_decides_here(tokens, name):
    assert [rule.backend for rule in decided(RULES, tokens)] == ([] if name is None else [name])


@pytest.mark.parametrize(("shape", "placed"), [((3, 5), False), ((16,), True), ((4, 4), True), ((15,), False)])
def test_fewer_tokens_than_wanted_keep_the_graph(shape, placed):
    mlp, x = Gated(silu), an_input(*shape)
    ran = passed(mlp, x, min_tokens=16)
    assert bool(operators(ran)) is placed
    if not placed:
        (kept,) = ran.report.kept
        assert kept.reason == "fewer tokens than min_tokens = 16"
    assert_same(ran.values, outcome(mlp, mlp, x))


def _graphs(mlp, min_tokens, **options):
    """How many graphs four lengths need, with the pass and without it."""
    counts = []
    for settings in (None, settle("eager", min_tokens)):
        torch._dynamo.reset()
        LEDGER.clear()
        graphs = []
        call = torch.compile(mlp, backend=backend(Pass(settings), graphs, "aot_eager"), **options)
        for length in (4, 16, 40, 1):
            x = an_input(2, length)
            assert_same(outcome(call, mlp, x), outcome(mlp, mlp, x))
        counts.append(len(graphs))
    return counts


@pytest.mark.full
@pytest.mark.parametrize("min_tokens", [0, 16])
@pytest.mark.parametrize("dynamic", [None, True])
def test_no_length_compiles_more_graphs_than_without_the_pass(min_tokens, dynamic):
    without, with_pass = _graphs(Gated(silu), min_tokens, dynamic=dynamic)
    assert with_pass == without
    assert LEDGER.report().placed


def test_a_symbol_is_decided_as_it_runs():
    mlp = Gated(silu)
    x = an_input(2, 8)
    torch._dynamo.mark_dynamic(x, 1)
    torch._dynamo.reset()
    LEDGER.clear()
    graphs = []
    call = torch.compile(mlp, backend=backend(Pass(settle("eager", 16)), graphs), fullgraph=True)
    call(x)
    assert len(LEDGER.report().placed) == 1
    (node,) = (node for graph in graphs for node in graph.nodes if "mlpfusion" in str(node.target))
    assert '[[16, null, "eager"]]' in node.args


@pytest.mark.parametrize("shape", [(2, 3, 2), (2, 3, 4), (2, 3, 2, 3)])
def test_rows_of_several_dimensions_that_are_symbols(shape):
    mlp, x = Gated(silu), an_input(*shape)
    ran = passed(mlp, x, dynamic=True, fullgraph=True)
    assert len(ran.report.placed) == 1, str(ran.report)
    assert_same(ran.values, outcome(mlp, mlp, x))


def test_as_many_tokens_as_columns_are_told_apart():
    mlp, x = Gated(silu), an_input(48)
    ran = passed(lambda v: mlp.three(silu(mlp.one(v).view(-1, 48), mlp.two(v).view(48, 48))), x)
    assert len(ran.report.placed) == 1, str(ran.report)


RESHAPED = {
    "flat before": lambda m, x: m.three(silu(m.one(x.flatten(0, 1)), m.two(x.flatten(0, 1)))).view(x.shape),
    "flat after": lambda m, x: m.three(silu(m.one(x), m.two(x)).flatten(0, 1)),
    "flat gate and up": lambda m, x: m.three(silu(m.one(x).view(-1, 48), m.two(x).view(-1, 48))),
    "parted after": lambda m, x: m.three(silu(m.one(x), m.two(x)).view(1, 2, 5, 48)),
    "flat before, parted after": lambda m, x: m.three(
        silu(m.one(x.view(10, 32)), m.two(x.view(10, 32))).view(2, 5, 48)
    ),
}


@pytest.mark.parametrize("forward", RESHAPED.values(), ids=RESHAPED)
def test_rows_may_be_reshaped_on_the_way(forward):
    mlp, x = Gated(silu), an_input()
    ran = passed(lambda v: forward(mlp, v), x)
    assert len(ran.report.placed) == 1, str(ran.report)
    assert_same(ran.values, outcome(lambda v: forward(mlp, v), None, x))


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_of_gate_and_up_is_cut_once(bias):
    """Two cuts would have two gradients, each half of it zeros, and their sum."""
    mlp, x = Packed(lambda both: silu(*both.chunk(2, -1)), bias=bias), an_input()
    ran = passed(mlp, x, then="aot_eager")
    assert len(ran.report.placed) == 1
    cuts = [node for graph in ran.graphs for node in graph.nodes if node.target is torch.chunk]
    assert len(cuts) == 1 + bias
    assert_same(ran.values, outcome(mlp, mlp, x))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_nothing_is_kept_for_a_backward_that_cannot_come(mode):
    mlp, x = Gated(silu), an_input(grad=False)
    with mode():
        ran = passed(mlp, x)
    (node,) = operators(ran)
    assert node.args[8] is (mode is torch.enable_grad)
    assert [each.training for each in ran.report.placed] == [mode is torch.enable_grad]


@pytest.mark.parametrize("frozen", [("one",), ("two", "three"), ("one", "two", "three")])
def test_only_the_gradients_that_are_wanted_are_given(frozen):
    mlp, x = Gated(silu, bias=True), an_input(grad=len(frozen) == 3)
    for name in frozen:
        getattr(mlp, name).requires_grad_(False)
    ran = passed(mlp, x, then="aot_eager")
    assert len(ran.report.placed) == 1
    assert_same(ran.values, outcome(mlp, mlp, x))
