"""The bounds: right forms stay inside, each wrong one is outside where it can be seen, and is named."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support import overflowing

from mlpfusion import reference
from mlpfusion.backends.eager import FUNCTIONS as EAGER
from mlpfusion.spec import ACTIVATIONS, DTYPES
from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.diagnose import diagnose, rounding_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from mlpfusion.spec import Activation, Dtype

    Form = Callable[[Tensor, Tensor], Tensor]

pytestmark = pytest.mark.values


C = math.sqrt(2 / math.pi)


def tanh_form(half: float = 0.5, root: float = C, cubic: float = 0.044715) -> Form:
    return lambda g, u: half * g * (1 + torch.tanh(root * (g + cubic * g * g * g))) * u


def operands(dtype: Dtype, scale: float, seed: int, n: int = 2048) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    gate, up, dy = (torch.randn(n, generator=generator) for _ in range(3))
    narrow = getattr(torch, dtype)
    return (gate * scale).to(narrow), up.to(narrow), dy.to(narrow)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([0.01, 1.0, 10.0]))
def test_eager_is_inside_every_bound(dtype: Dtype, activation: Activation, seed: int, scale: float) -> None:
    gate, up, dy = operands(dtype, scale, seed)
    g, u = gate.requires_grad_(), up.requires_grad_()
    y = EAGER[activation](g) * u
    dgate, dup = torch.autograd.grad(y, (g, u), dy)
    at = bounds.Point(gate.detach(), up.detach(), dy)
    assert bounds.forward_scores(y.detach(), at.gate, at.up, activation, dtype).max() <= bounds.LIMIT
    assert bounds.gate_scores(dgate, at, activation, dtype).max() <= bounds.LIMIT
    assert bounds.up_scores(dup, at, activation, dtype).max() <= bounds.LIMIT


def test_nan_and_infinity_have_no_finite_score() -> None:
    gate, up, _ = operands("float32", 1.0, 0, n=4)
    y = torch.tensor([math.nan, math.inf, -math.inf, 0.0])
    scores = bounds.forward_scores(y, gate, up, "gelu_tanh", "float32")
    assert scores[:3].isinf().all()
    assert scores[3].isfinite()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_gate_value_of_eager_is_inside(dtype: Dtype, activation: Activation) -> None:
    gate = bounds.every_value(dtype)
    for factor in (1.0, 1.0 + bounds.EPS[dtype]):
        up = torch.full_like(gate, factor)
        inner = gate.float()
        once = (EAGER[activation](inner) * up.float()).to(gate.dtype)
        twice = EAGER[activation](inner).to(gate.dtype) * up
        for y in (once, twice):
            beyond = functools.partial(bounds.beyond, gate=gate, up=up, activation=activation, dtype=dtype)
            assert not excuses.part(beyond, y, functools.partial(excuses.pytorch, gate, up, activation)).wrong.any()


def test_every_value_is_every_finite_value_once() -> None:
    for dtype, count in (("bfloat16", 2**16 - 2**8), ("float16", 2**16 - 2**11)):
        values = bounds.every_value(dtype)  # type: ignore[arg-type]
        assert values.numel() == count
        assert values.isfinite().all()
        assert len(set(values.view(torch.int16).tolist())) == count
        assert (values.double().diff() >= 0).all()


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
ODD = st.sampled_from([math.nan, math.inf, -math.inf])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@settings(max_examples=10)
@given(data=st.data())
def test_nan_and_infinity_are_near_no_finite_value(dtype: Dtype, activation: Activation, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    gate = torch.tensor(data.draw(st.lists(st.floats(-60, 60, width=16), min_size=count, max_size=count)))
    gate = gate.to(getattr(torch, dtype))
    up = torch.ones_like(gate)
    y = bounds.product(gate, up, activation).to(gate.dtype)
    assert bounds.is_near(y, gate, up, activation, dtype)
    y[data.draw(st.integers(0, count - 1))] = data.draw(ODD)
    assert not bounds.is_near(y, gate, up, activation, dtype)


@settings(max_examples=200)
@given(
    values=st.lists(st.one_of(FINITE, ODD), min_size=1, max_size=8),
    other=st.one_of(FINITE, ODD),
    at=st.integers(0, 7),
)
def test_only_the_same_is_close_to_nan_and_infinity(values: list[float], other: float, at: int) -> None:
    right = torch.tensor(values)
    assert bounds.is_close(right, right.clone(), "float32")
    found = right.clone()
    found[at % len(values)] = other
    was, now = (float(each[at % len(values)]) for each in (right, found))
    if not (math.isfinite(was) and math.isfinite(now)):
        same = was == now or (math.isnan(was) and math.isnan(now))
        assert bounds.is_close(found, right, "float32") == same
    elif abs(now - was) > 1e-3 * max(abs(value) for value in values if math.isfinite(value)):
        assert not bounds.is_close(found, right, "float32")


def truncated(value: torch.Tensor) -> torch.Tensor:
    return ((value.contiguous().view(torch.int32) >> 13) << 13).view(torch.float32).half()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_biases_of_stores(activation: Activation) -> None:
    """Zeros, which are half of what ReLU gives, say nothing of a store."""
    generator = torch.Generator().manual_seed(0)
    gate, up, dy = (torch.randn(20_000, generator=generator).half() for _ in range(3))
    y = bounds.product(gate, up, activation).float()
    at = bounds.Point(gate, up, dy)
    dgate, dup = (each.float() for each in bounds.gradients(at, activation))
    assert bounds.bias_in_ulp(y.half(), gate, up, activation, "float16") == pytest.approx(0, abs=0.02)
    assert bounds.bias_in_ulp(truncated(y), gate, up, activation, "float16") == pytest.approx(-0.5, abs=0.02)
    right = bounds.gradient_biases_in_ulp(dgate.half(), dup.half(), at, activation, "float16")
    assert right == pytest.approx((0, 0), abs=0.02)
    one = bounds.gradient_biases_in_ulp(truncated(dgate), dup.half(), at, activation, "float16")
    assert one == pytest.approx((-0.5, 0), abs=0.02)
    other = bounds.gradient_biases_in_ulp(dgate.half(), truncated(dup), at, activation, "float16")
    assert other == pytest.approx((0, -0.5), abs=0.02)


@pytest.fixture(params=["as it is", "oneDNN's under AVX-512"])
def library(request: pytest.FixtureRequest) -> Iterator[None]:
    """PyTorch as it is here, and with the overflow of other CPUs."""
    with overflowing.overflowing(*([] if request.param == "as it is" else [overflowing.ONEDNN])):
        yield


def named(form: Form, dtype: Dtype = "float32", activation: Activation = "gelu_tanh") -> tuple[str, str]:
    gate = bounds.every_value(dtype)
    up = torch.full_like(gate, 1.0 + bounds.EPS[dtype])
    y = form(gate.float(), up.float()).to(gate.dtype)
    found = diagnose(y, gate, up, activation, dtype)
    return ("right", "") if found is None else (found.where, found.sentence)


CASES = [
    (tanh_form(half=0.6), "constants", "as if the factor 0.5 in front of g·(1 + tanh) were 0.6"),
    (tanh_form(half=1.0), "constants", "the factor 0.5 is missing"),
    (tanh_form(cubic=0.044), "constants", "the cubic coefficient is 0.044 where 0.044715 belongs"),
    (tanh_form(cubic=0.04), "constants", "the cubic coefficient is 0.04 where"),
    (tanh_form(cubic=0.054715), "constants", "the cubic coefficient is 0.0547"),
    (tanh_form(root=0.7978), "constants", "tanh's argument is 0.7978"),
    (tanh_form(half=0.6, cubic=0.05), "constants", "were 0.6; the cubic coefficient is 0.05 where"),
    (lambda g, u: F.gelu(g) * u, "function", "another function: every value is the exact (erf) GELU"),
    (lambda g, u: F.silu(g) * u, "function", "another function: every value is SiLU"),
    (lambda g, u: F.relu(g) * u, "function", "every value is ReLU"),
    (
        lambda g, u: g * torch.sigmoid(1.702 * g) * u,
        "function",
        "this is g·sigmoid(1.702·g), not the tanh form of GELU",
    ),
    (lambda g, u: F.gelu(u, approximate="tanh") * g, "function", "gate and up are exchanged"),
    (lambda g, u: 0 * g * u, "function", "every result is 0"),
    (lambda g, u: g + u, "function", "an unknown function"),
    (lambda g, u: (F.gelu(g.half(), approximate="tanh") * u.half()).float(), "precision", "float16 (11 bits)"),
    (
        lambda g, u: 0.5 * g * (1 + torch.tanh(C * (g + 0.044715 * g * g * g)).half().float()) * u,
        "precision",
        "a hardware tanh approximation",
    ),
]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("form", "where", "words"), CASES, ids=[case[2][:40] for case in CASES])
def test_a_wrong_function_is_named_in_float32(form: Form, where: str, words: str) -> None:
    found, sentence = named(form)
    assert found == where
    assert words in sentence


@pytest.mark.usefixtures("library")
def test_a_right_function_has_no_diagnosis() -> None:
    for dtype in DTYPES:
        assert named(tanh_form(), dtype)[0] == "right"
        assert named(lambda g, u: g * torch.sigmoid(2 * C * (g + 0.044715 * g * g * g)) * u, dtype)[0] == "right"
        assert named(lambda g, u: F.gelu(g) * u, dtype, "gelu")[0] == "right"


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bits_tell_the_gelus_apart_but_not_every_constant(dtype: Dtype) -> None:
    assert "every value is the exact (erf) GELU" in named(lambda g, u: F.gelu(g) * u, dtype)[1]
    assert "were 0.6" in named(tanh_form(half=0.6), dtype)[1]
    wrong = named(tanh_form(root=0.7978), dtype)
    assert wrong[0] == ("right" if dtype == "bfloat16" else "function")  # 0.7978 moves no bf16 value by an ulp


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_where_it_rounds(dtype: Dtype) -> None:
    gate = bounds.every_value(dtype)
    up = torch.full_like(gate, 1.0 + bounds.EPS[dtype])
    act = reference.activate(gate.double(), "gelu_tanh")
    once, twice = (act * up.double()).to(gate.dtype), (act.to(gate.dtype).double() * up.double()).to(gate.dtype)
    assert rounding_place(once, gate, up, "gelu_tanh", dtype).startswith("rounds once, at the end")
    assert rounding_place(twice, gate, up, "gelu_tanh", dtype).startswith("rounds after the activation")
    assert rounding_place(once * 2, gate, up, "gelu_tanh", dtype).startswith("rounds neither")
