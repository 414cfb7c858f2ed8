"""What lies between the layers is run and not read: spellings of each activation, and what only looks like one."""

from __future__ import annotations

import math

import pytest
import torch
from support.passed import Gated, Packed, an_input, assert_same, operators, outcome, passed
from support.rings import first_of_each
from torch.nn import functional

transformers_activations = pytest.importorskip("transformers.activations")
HF = transformers_activations.ACT2FN


def _typed_out(g):
    return 0.5 * g * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (g + 0.044715 * torch.pow(g, 3.0))))


SPELLINGS = {
    "gelu": ("gelu", lambda g, u: functional.gelu(g) * u),
    "nn.GELU": ("gelu", lambda g, u: torch.nn.GELU()(g) * u),
    "gelu_python": ("gelu", lambda g, u: HF["gelu_python"](g) * u),
    "tanh": ("gelu_tanh", lambda g, u: functional.gelu(g, approximate="tanh") * u),
    "tanh typed out": ("gelu_tanh", lambda g, u: _typed_out(g) * u),
    "gelu_new": ("gelu_tanh", lambda g, u: HF["gelu_new"](g) * u),
    "gelu_fast": ("gelu_tanh", lambda g, u: HF["gelu_fast"](g) * u),
    "silu": ("silu", lambda g, u: functional.silu(g) * u),
    "silu in place": ("silu", lambda g, u: functional.silu(g, inplace=True) * u),
    "silu in place by position": ("silu", lambda g, u: functional.silu(g, True) * u),
    "up first": ("silu", lambda g, u: g * functional.silu(u)),
    "sigmoid": ("silu", lambda g, u: (g * torch.sigmoid(g)) * u),
    "sigmoid on up": ("silu", lambda g, u: g * (torch.sigmoid(g) * u)),
    "product in place": ("silu", lambda g, u: functional.silu(g).mul_(u)),
    "torch.mul": ("relu", lambda g, u: torch.mul(torch.relu(g), u)),
    "relu of two": ("relu2", lambda g, u: functional.relu(g).square() * u),
    "quick": ("quick_gelu", lambda g, u: HF["quick_gelu"](g) * u),
    "nothing else": ("silu", lambda g, u: functional.dropout(functional.silu(g) * u, 0.0, True)),
    "halved and doubled": ("silu", lambda g, u: 2 * (functional.silu(g) * (0.5 * u))),
    "clamps at infinity": ("silu", lambda g, u: functional.silu(g).clamp(max=math.inf) * u.clamp(-math.inf, math.inf)),
    "clamp at infinity, up first": ("gelu", lambda g, u: g.clamp(max=math.inf) * functional.gelu(u)),
    "cast to what it is": ("silu", lambda g, u: functional.silu(g.float()).to(u.dtype) * u),
}


@pytest.mark.parametrize(
    ("activation", "between"), first_of_each(SPELLINGS.values(), key=lambda row: row[0]), ids=SPELLINGS
)
def test_every_spelling_of_an_activation_is_taken_for_what_it_computes(activation, between):
    mlp, x = Gated(between), an_input()
    ran = passed(mlp, x)
    assert [each.activation for each in ran.report.placed] == [activation], str(ran.report)
    assert len(operators(ran)) == 1
    assert_same(ran.values, outcome(mlp, mlp, x))


PACKINGS = {
    "chunk": lambda b: functional.silu(b.chunk(2, -1)[0]) * b.chunk(2, -1)[1],
    "chunk, up first": lambda b: b.chunk(2, dim=-1)[0] * functional.silu(b.chunk(2, dim=-1)[1]),
    "split": lambda b: functional.silu(torch.split(b, 48, -1)[0]) * torch.split(b, 48, -1)[1],
    "slices": lambda b: functional.silu(b[..., :48]) * b[..., 48:],
    "slices, up first": lambda b: b[..., :48] * functional.silu(b[..., 48:]),
    "unflatten": lambda b: functional.silu(b.unflatten(-1, (2, 48)).unbind(-2)[0]) * b.unflatten(-1, (2, 48))[:, :, 1],
    "view": lambda b: functional.silu(b.view(2, 5, 2, 48)[..., 0, :]) * b.view(2, 5, 2, 48)[..., 1, :],
}


@pytest.mark.parametrize("between", PACKINGS.values(), ids=PACKINGS)
def test_every_way_to_part_one_layer_is_run(between):
    mlp, x = Packed(between, bias=True), an_input()
    ran = passed(mlp, x)
    assert [each.activation for each in ran.report.placed] == ["silu"], str(ran.report)
    assert_same(ran.values, outcome(mlp, mlp, x))


# What differs somewhere: in a value, in a gradient, where numbers are large, infinite or nan, or by chance.
OTHERS = {
    "detached gate": lambda g, u: functional.silu(g.detach()) * u,
    "detached up": lambda g, u: functional.silu(g) * u.detach(),
    "detached in part": lambda g, u: (g * torch.sigmoid(g).detach()) * u,
    "straight through": lambda g, u: (g + (functional.silu(g) - g).detach()) * u,
    "clamp of gate": lambda g, u: functional.silu(g.clamp(max=50)) * u,
    "clamp of up": lambda g, u: functional.silu(g) * u.clamp(-7, 7),
    "clamps of both": lambda g, u: functional.silu(g).clamp(max=16.0) * u.clamp(-16.0, 16.0),
    "clamp below zero": lambda g, u: functional.silu(g).clamp(min=0.0) * u,
    "nan of up": lambda g, u: functional.silu(g) * torch.where(u.isnan(), 0.0, u),
    "clamp of the product at float16's end": lambda g, u: (functional.silu(g) * u).clamp(-65504, 65504),
    "clamp at bfloat16's end": lambda g, u: functional.silu(g).clamp(max=1e36) * u,
    "nan_to_num of gate": lambda g, u: functional.silu(torch.nan_to_num(g)) * u,
    "nan_to_num of the product": lambda g, u: torch.nan_to_num(functional.silu(g) * u),
    "leaky": lambda g, u: functional.leaky_relu(g) * u,
    "sigmoid alone": lambda g, u: torch.sigmoid(g) * u,
    "no activation": lambda g, u: g * u * 1.0,
    "an activation more": lambda g, u: functional.silu(g) * functional.silu(u),
    "a factor": lambda g, u: functional.silu(g) * u * 1.0001,
    "a constant": lambda g, u: functional.silu(g) * (u + 1),
    "dropout": lambda g, u: functional.dropout(functional.silu(g) * u, 0.1, True),
    "norm": lambda g, u: functional.layer_norm(functional.silu(g) * u, (48,)),
    "narrower inside": lambda g, u: functional.silu(g.half()).float() * u,
    "order of columns": lambda g, u: (functional.silu(g) * u).flip(-1),
    "order of rows": lambda g, u: (functional.silu(g) * u).flip(0),
    "rolled tokens": lambda g, u: functional.silu(g) * u.roll(1, -2),
    "sum with gate": lambda g, u: functional.silu(g) * u + g,
}


@pytest.mark.parametrize("between", OTHERS.values(), ids=OTHERS)
def test_what_differs_anywhere_is_a_near_miss_with_its_operators(between):
    mlp, x = Gated(between), an_input()
    ran = passed(mlp, x)
    assert not operators(ran)
    (miss,) = ran.report.near_misses
    assert "between its products it computes" in miss.reason, miss
    assert "mul" in miss.reason


INTERLEAVED = {
    "columns in turn": lambda b: functional.silu(b[..., ::2]) * b[..., 1::2],
    "blocks in turn": lambda b: (
        functional.silu(b.unflatten(-1, (2, 2, 24))[..., 0, :].flatten(-2))
        * b.unflatten(-1, (2, 2, 24))[..., 1, :].flatten(-2)
    ),
    "not all of it": lambda b: functional.silu(b[..., 1:49]) * b[..., 48:],
    "one half with itself": lambda b: functional.silu(b[..., :48]) * b[..., :48] * (b[..., 48:] > -1e300),
}


@pytest.mark.parametrize("between", INTERLEAVED.values(), ids=INTERLEAVED)
def test_halves_that_are_none_are_refused(between):
    mlp, x = Packed(between), an_input()
    ran = passed(mlp, x)
    assert not operators(ran)
    assert len(ran.report.near_misses) == 1, str(ran.report)


def test_the_random_state_of_the_user_does_not_move():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    mlp, x = Gated(SPELLINGS["silu"][1]), an_input()
    torch.manual_seed(5)
    passed(mlp, x)
    assert torch.equal(torch.rand(3), expected)


def test_one_proof_serves_every_layer_of_a_shape(monkeypatch):
    from mlpfusion.inductor import passes, prove

    layers = torch.nn.Sequential(*(Gated(SPELLINGS["silu"][1]) for _ in range(3)))
    calls = []
    proved = prove._proved
    monkeypatch.setattr(prove, "_proved", lambda run: calls.append(run) or proved(run))
    monkeypatch.setattr(passes, "_PROVED", {})
    assert len(passed(layers, an_input()).report.placed) == 3
    assert len(calls) == 1
