"""What the report says of graphs, in figures and in words, and what the log of torch.compile gets of it."""

from __future__ import annotations

import logging
import threading

import pytest
from support.passed import Gated, an_input, passed
from torch import fx, nn
from torch.nn import functional

from mlpfusion.inductor.ledger import LEDGER, Entry, Ledger, Report, module_of

SHAPE = {"activation": "silu", "hidden_size": 32, "intermediate_size": 48, "dtype": "float32", "training": False}
PLACED = Entry(graph=0, module="a.mlp", node="linear_2", outcome="placed", backends=("fused",), tokens=8192, **SHAPE)
KEPT = Entry(graph=0, module="", node="y", outcome="kept", tokens="s0", reason="too few", **SHAPE)
MISS = Entry(graph=1, module="layers.1.mlp", node="linear_5", outcome="near miss", reason="it also reads scale")


def test_entries_are_parted_by_what_became_of_them():
    report = Report(graphs=2, entries=(PLACED, KEPT, MISS), pass_ms=12.3)
    assert (report.placed, report.kept, report.near_misses) == ((PLACED,), (KEPT,), (MISS,))
    assert str(report).splitlines() == [
        "2 graphs in 12 ms: 1 placed, 1 kept, 1 near misses",
        "placed by fused: graph 0, a.mlp (linear_2): silu 32 x 48 float32, 8192 tokens",
        "kept: graph 0, the function itself (y): silu 32 x 48 float32, s0 tokens: too few",
        "near miss: graph 1, layers.1.mlp (linear_5): it also reads scale",
    ]


def test_no_graph_is_said_and_why():
    assert str(Ledger().report()).startswith("no graph seen: only Inductor runs the pass")


def test_many_threads_lose_nothing():
    ledger = Ledger()

    def meet():
        for _ in range(50):
            ledger.graph()
            ledger.add([PLACED], 1.0)

    threads = [threading.Thread(target=meet) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = ledger.report()
    assert (report.graphs, len(report.entries), report.pass_ms) == (200, 200, 200.0)
    ledger.clear()
    assert ledger.report().graphs == 0


def test_the_log_of_inductor_has_every_line():
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    log = logging.getLogger("torch._inductor.mlpfusion")
    was = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    LEDGER.add([PLACED, MISS], 0.0)
    log.removeHandler(handler)
    log.setLevel(was)
    assert lines == [str(PLACED), str(MISS)]


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        ({}, ""),
        ({"a": ("L['self'].model.layers.0.mlp.down_proj", nn.Linear)}, "model.layers.0.mlp"),
        ({"a": ("L['self'].mlp", nn.Module), "b": ("L['self'].mlp.down", "torch.nn.modules.linear.Linear")}, "mlp"),
        ({"a": ("L['self'].three", nn.Linear)}, ""),
        ({"a": ("L['fn'].layers.1", nn.Module)}, "layers.1"),
        ({"a": ("L['self']._orig_mod.layers.1._checkpoint_wrapped_module.mlp.down", nn.Linear)}, "layers.1.mlp"),
    ],
)
def test_the_module_is_the_one_that_has_the_layer(stack, name):
    node = fx.Graph().placeholder("x")
    node.meta["nn_module_stack"] = stack
    assert module_of(node) == name


def test_modules_are_named_as_in_the_model():
    mlp = Gated(lambda g, u: functional.silu(g) * u)
    model = nn.ModuleDict({"layers": nn.ModuleList([mlp, Gated(lambda g, u: functional.silu(g) * (u + 1))])})

    def forward(x):
        return model["layers"][1](model["layers"][0](x))

    report = passed(forward, an_input()).report
    assert report.placed[0].module.endswith("layers.0")
    assert report.near_misses[0].module.endswith("layers.1")


class _Decorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Gated(lambda g, u: functional.silu(g) * u)])

    @staticmethod
    def _passing_on(forward):
        def decorated(*args, **kwargs):
            return forward(*args, **kwargs)

        return decorated

    def forward(self, x):
        return self.layers[0](x)


_Decorated.forward = _Decorated._passing_on(_Decorated.forward)


def test_a_model_with_a_decorated_forward_has_the_names_that_it_has_otherwise():
    (entry,) = passed(_Decorated()._call_impl, an_input()).report.placed
    assert entry.module == "layers.0"
