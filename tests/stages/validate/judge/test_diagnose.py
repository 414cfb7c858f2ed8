"""A wrong function is named by what it computes, and where it rounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from support.overflowing import ONEDNN, overflowing

from mlpfusion import reference
from mlpfusion.backends.eager import FUNCTIONS as EAGER
from mlpfusion.spec import ACTIVATIONS, DTYPES
from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.diagnose import FAMILY, diagnose, in_up, rounding_place
from mlpfusion.stages.validate.judge.sweeps import through_mlp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from mlpfusion.spec import Activation, Dtype

    Form = Callable[[Tensor, Tensor], Tensor]

pytestmark = pytest.mark.values
INF, NAN = math.inf, math.nan
C = math.sqrt(2 / math.pi)


def tanh_form(half: float = 0.5, root: float = C, cubic: float = 0.044715) -> Form:
    return lambda g, u: half * g * (1 + torch.tanh(root * (g + cubic * g * g * g))) * u


def tail(slope: float, *, beyond: float) -> Form:
    """The function up to `beyond`, and there g, or -slope·g for negative g."""

    def form(g: Tensor, u: Tensor) -> Tensor:
        inside = torch.where(g < -beyond, -slope * g, tanh_form()(g, u) / u)
        return (inside if slope else torch.where(g > beyond, g, inside)) * u

    return form


@pytest.fixture(params=["as it is", "oneDNN's under AVX-512"])
def library(request: pytest.FixtureRequest) -> Iterator[None]:
    """PyTorch as it is here, and with the overflow of other CPUs."""
    with overflowing(*([] if request.param == "as it is" else [ONEDNN])):
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
    (lambda g, u: g * torch.sigmoid(1.65 * g) * u, "function", "g·sigmoid(1.65·g), not the tanh form of GELU"),
    (lambda g, u: g * torch.sigmoid(1.7018 * g) * u, "function", "g·sigmoid(1.702·g), which is the quick GELU"),
    (tanh_form(half=0.6, cubic=0.05), "constants", "were 0.6; the cubic coefficient is 0.05 where"),
    (lambda g, u: F.gelu(g) * u, "function", "another function: every value is the exact (erf) GELU"),
    (lambda g, u: F.silu(g) * u, "function", "another function: every value is SiLU"),
    (lambda g, u: F.relu(g) * u, "function", "every value is ReLU"),
    (
        lambda g, u: g * torch.sigmoid(1.702 * g) * u,
        "function",
        "every value is the quick GELU",
    ),
    (lambda g, u: F.gelu(u, approximate="tanh") * g, "function", "gate and up are exchanged"),
    (lambda g, u: 0 * g * u, "function", "every result is 0"),
    (lambda g, u: g + u, "function", "an unknown function"),
    (
        tail(0.0, beyond=3),
        "function",
        "but for gates from -4.62 to -3.02 and from 3.02 to 4.56: there it is off by up to 0.00",
    ),
    (tail(1e-3, beyond=4), "function", "it is the tanh form of GELU, but for gates from -3.39e+38 to -4.03"),
    (lambda g, u: tanh_form()(g.clamp(-64, 64), u), "function", "but for gates from 64.5 to 3.39e+38"),
    (lambda g, u: (F.gelu(g.half(), approximate="tanh") * u.half()).float(), "precision", "float16 (11 bits)"),
    (
        lambda g, u: 0.5 * g * (1 + torch.tanh(C * (g + 0.044715 * g * g * g)).bfloat16().float()) * u,
        "precision",
        "the errors are noise of 2^-11",
    ),
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


@pytest.mark.parametrize("activation", [name for name, each in FAMILY.items() if not each.b])
def test_a_wrong_factor_in_or_before_the_sigmoid_is_named(activation: Activation) -> None:
    a = FAMILY[activation].a
    found, sentence = named(lambda g, u: g * torch.sigmoid(1.01 * a * g) * u, activation=activation)
    assert (found, f"argument is {1.01 * a:.5g}·g" in sentence) == ("constants", True)
    assert sentence.endswith("where g belongs" if a == 1 else f"where {a}·g belongs")
    found, sentence = named(lambda g, u: 1.1 * g * torch.sigmoid(a * g) * u, activation=activation)
    assert (found, sentence) == ("constants", "every value is 1.1 times what it should be")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_function_has_no_diagnosis(dtype: Dtype, activation: Activation) -> None:
    """In float32 inside; nor, where eager rounds in between, what computes just as eager does."""
    assert named(lambda g, u: EAGER[activation](g) * u, dtype, activation)[0] == "right"
    gate = bounds.every_value(dtype)
    up = torch.full_like(gate, 1.0 + bounds.EPS[dtype])
    y = EAGER[activation](gate) * up
    assert diagnose(y, gate, up, activation, dtype) is None
    assert diagnose(y * (1 + 8 * bounds.EPS[dtype]), gate, up, activation, dtype) is not None


@pytest.mark.usefixtures("library")
def test_a_right_form_of_gelu_has_no_diagnosis() -> None:
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("asked", ["gelu", "gelu_tanh"])
def test_a_mlp_of_the_exact_gelu_is_named_although_rows_of_it_are_nan(dtype: Dtype, asked: Activation) -> None:
    def by(activation: Activation) -> Any:
        def mlp(given: dict[str, Tensor]) -> Tensor:
            x, wg, wu, wd = (given[name] for name in ("x", "wg", "wu", "wd"))
            return F.linear(EAGER[activation](F.linear(x, wg)) * F.linear(x, wu), wd)

        return lambda: through_mlp(bounds.every_value(dtype), 1.0, (64, 128), mlp)

    with overflowing(ONEDNN):
        swept = by("gelu")()
        found = diagnose(swept.y, swept.gate, swept.up, asked, dtype, eager=lambda name: by(name)().y)
    if asked == "gelu":
        assert found is None
    else:
        assert found is not None
        assert (found.where, found.sentence[:24]) == ("function", "this is another function")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("value", "dtype"), [(INF, "bfloat16"), (NAN, "float16"), (0.0, "float32")])
def test_a_wrong_value_that_eager_gets_right_is_no_function(value: float, dtype: Dtype, activation: Activation) -> None:
    gate = bounds.every_value(dtype)
    up = torch.ones_like(gate)
    y = (reference.activate(gate.double(), activation) * up.double()).to(gate.dtype)
    assert diagnose(y, gate, up, activation, dtype) is None
    y[gate.double() > 100] = value
    found = diagnose(y, gate, up, activation, dtype)
    assert found is not None
    overflowed = torch.where(gate.double() > 100, value, EAGER[activation](gate).double()).to(gate.dtype)
    assert diagnose(y, gate, up, activation, dtype, eager=lambda name: overflowed) is None
    other = 5.0 if value == INF else INF  # eager is wrong there too, otherwise
    overflowed = torch.where(gate.double() > 100, other, EAGER[activation](gate).double()).to(gate.dtype)
    assert diagnose(y, gate, up, activation, dtype, eager=lambda name: overflowed) is not None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("form", "words"),
    [
        (lambda g, u: g * (u + 1), "act(gate)·(up + 1), where act(gate)·up is right"),
        (lambda g, u: g * (u - 2), "act(gate)·(up - 2), where"),
        (lambda g, u: g * (2 * u + 3), None),
        (lambda g, u: g + 0 * u, "1 times act(gate), whatever up is"),
        (lambda g, u: g * u * 2, None),
        (lambda g, u: (g + 1) * u, None),
        (lambda g, u: g * u * u, None),
    ],
)
def test_a_sum_in_place_of_up_is_told_from_a_factor(form: Form, words: str | None, dtype: Dtype) -> None:
    gate = bounds.every_value(dtype)
    act = reference.activate(gate.double(), "gelu_tanh")
    low, high = (form(act, torch.full_like(act, up)).to(gate.dtype) for up in (1.0, 3.0))
    found = in_up(low, high, gate, (1.0, 3.0), "gelu_tanh")
    assert found is None if words is None else words in (found or "")
