"""Computes act(g)·u and its gradients in fp64, and the bounds for a result's distance from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor

from mlpfusion.reference import activate

if TYPE_CHECKING:
    from mlpfusion.spec import Activation, Dtype

# The distance of 1 to the next number; a result that is rounded once is off by at most half of it, relatively.
EPS: Final[dict[Dtype, float]] = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23}
# The smallest number above zero.
TINY: Final[dict[Dtype, float]] = {"bfloat16": 2.0**-133, "float16": 2.0**-24, "float32": 2.0**-149}

# A result is right while no element's score is above this.
LIMIT: Final = 2.0
# What computing in fp32 may cost on top of the roundings to the dtype, relative to |g·u|: the form 0.5·g·(1 + tanh z)
# cancels where g is negative, and an approximate exponential or division is off by an ulp or two.
INNER: Final = 2.0**-22
# The same for the gradient of gate, relative to |dy·u|·(1 + |g|): its formulas hold 1 - tanh² times a polynomial in g.
INNER_GATE: Final = 2.0**-21

# The hardware's tanh (tanh.approx) is off by 2^-11 at most; as g·(1 + tanh z)/2 that is within this times |g|.
HARDWARE_TANH: Final = 6e-4


def product(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    """act(gate)·up in fp64 of tensors of one shape and any dtypes."""
    return activate(gate.double(), activation) * up.double()


class Point(NamedTuple):
    """Operands of one shape and the gradient that reaches their product."""

    gate: Tensor
    up: Tensor
    dy: Tensor


class Bias(NamedTuple):
    """Mean errors in ulp of results above zero and of those below it: a store that rounds down has -0.5 in both."""

    above: float
    below: float

    @property
    def worst(self) -> float:
        """The larger of the two, nan where nothing was judged."""
        return max(self, key=lambda value: math.inf if math.isnan(value) else abs(value))


class Biases(NamedTuple):
    """Mean errors of the two gradients."""

    gate: Bias
    up: Bias


def gradients(at: Point, activation: Activation) -> tuple[Tensor, Tensor]:
    """The gradients of act(gate)·up for gate and up, in fp64."""
    g, u = at.gate.double().requires_grad_(), at.up.double().requires_grad_()
    dgate, dup = grads_for(activate(g, activation) * u, (g, u), at.dy.double())
    return dgate, dup


def grads_for(y: Tensor, operands: tuple[Tensor, ...], dy: Tensor) -> tuple[Tensor, ...]:
    """The gradients of operands where dy [of y's shape] arrives, to the bit those of `autograd.grad(y, operands, dy)`.

    For a dy PyTorch imports its symbolic shapes, which takes half a second; dy times 1 is dy.
    """
    return torch.autograd.grad((y * dy).sum(), operands)


def forward_scores(y: Tensor, gate: Tensor, up: Tensor, activation: Activation, dtype: Dtype) -> Tensor:
    """|y - r| / (eps·|r| + INNER·|g·u| + tiny·(1 + |u|)) per element; 0 where r is beyond the dtype or not finite."""
    g, u = gate.double(), up.double()
    reference = activate(g, activation) * u
    return _scores(y, reference, INNER * (g * u).abs() + TINY[dtype] * (1 + u.abs()), dtype)


def gate_scores(dgate: Tensor, at: Point, activation: Activation, dtype: Dtype) -> Tensor:
    """The same for dgate: |d - r| / (eps·|r| + INNER_GATE·|dy·u|·(1 + |g|) + tiny·(max(1, |act'|) + |u| + |dy|)).

    Each of the three factors of dy·u·act' multiplies what rounding the product of the others may cost.
    """
    g, u, v = at.gate.double(), at.up.double(), at.dy.double()
    reference = gradients(at, activation)[0]
    slope = (reference / (v * u)).abs().nan_to_num(0.0, posinf=0.0).clamp(min=1.0)
    inner = INNER_GATE * (v * u).abs() * (1 + g.abs()) + TINY[dtype] * (slope + u.abs() + v.abs())
    return _scores(dgate, reference, inner, dtype)


def up_scores(dup: Tensor, at: Point, activation: Activation, dtype: Dtype) -> Tensor:
    """The same for dup: |d - r| / (eps·|r| + INNER·|dy·g| + tiny·(1 + |dy|))."""
    g, v = at.gate.double(), at.dy.double()
    inner = INNER * (v * g).abs() + TINY[dtype] * (1 + v.abs())
    return _scores(dup, gradients(at, activation)[1], inner, dtype)


def _scores(value: Tensor, reference: Tensor, inner: Tensor, dtype: Dtype) -> Tensor:
    """A value that is nan or inf where the reference is inside the dtype has an infinite score."""
    scores = (value.double() - reference).abs() / (EPS[dtype] * reference.abs() + inner)
    scores = torch.where(value.double().isfinite(), scores, torch.inf)
    return torch.where(is_inside(reference, dtype), scores, 0.0)


def is_inside(reference: Tensor, dtype: Dtype) -> Tensor:
    """Where an fp64 value is finite and more than an ulp from overflow in the dtype."""
    largest = torch.finfo(getattr(torch, dtype)).max
    return reference.isfinite() & (reference.abs() < largest * (1 - EPS[dtype]))


def ulp(reference: Tensor, dtype: Dtype) -> Tensor:
    """The distance between neighbouring numbers of the dtype around an fp64 value, fp64."""
    exponent = torch.frexp(reference.abs().clamp(min=2.0**-200)).exponent - 1
    return torch.ldexp(torch.ones_like(reference), exponent).mul(EPS[dtype]).clamp(min=TINY[dtype])


def ulps_off(y: Tensor, gate: Tensor, up: Tensor, activation: Activation, dtype: Dtype) -> Tensor:
    """|y - r| in ulp of r, fp64, where r is inside the dtype; inf where y is nan or inf there."""
    reference = product(gate, up, activation)
    off = (y.double() - reference).abs() / ulp(reference, dtype)
    return torch.where(y.double().isfinite(), off, torch.inf)[is_inside(reference, dtype)]


def bias_in_ulp(y: Tensor, gate: Tensor, up: Tensor, activation: Activation, dtype: Dtype) -> Bias:
    """The mean of y - r in ulp, where |g| and |u| are above 1/16: near 0, and ±0.5 for a store that rounds to one side.

    It is taken apart for r above and below zero, since a store that truncates has errors of either sign.
    """
    return _bias(y, product(gate, up, activation), (gate, up), dtype)


def gradient_biases_in_ulp(dgate: Tensor, dup: Tensor, at: Point, activation: Activation, dtype: Dtype) -> Biases:
    """The same for the gradients, where |dy| is above 1/16, too."""
    references = gradients(at, activation)
    return Biases(*(_bias(each, r, tuple(at), dtype) for each, r in zip((dgate, dup), references, strict=True)))


def bias(value: Tensor, reference: Tensor, dtype: Dtype) -> Bias:
    """The same of any result beside what is right in fp64."""
    return _bias(value, reference, (), dtype)


def _bias(value: Tensor, reference: Tensor, operands: tuple[Tensor, ...], dtype: Dtype) -> Bias:
    kept = is_inside(reference, dtype) & (reference != 0)  # no store rounds a zero
    for operand in operands:
        kept &= operand.double().abs() > 1 / 16
    off = (value.double() - reference) / ulp(reference, dtype)
    kept &= off.abs() <= 2  # what is off by more than two ulp no store has done
    above, below = (off[kept & side] for side in (reference > 0, reference < 0))
    if not above.numel() and not below.numel():
        return Bias(math.nan, math.nan)
    return Bias(*(float(side.mean()) if side.numel() else 0.0 for side in (above, below)))


def is_same(a: Tensor, b: Tensor) -> Tensor:
    """Where two tensors of one shape hold the same value; nan is the same as nan."""
    return (a == b) | (a.isnan() & b.isnan())


def close(a: Tensor, b: Tensor, dtype: Dtype) -> Tensor:
    """Where two tensors of one shape are equal but for the order of sums: within 8 eps of the largest finite value.

    Nothing but itself is close to nan or inf.
    """
    finite = b.double().abs()[b.isfinite()]
    largest = float(finite.max()) if finite.numel() else 0.0
    near = (a.double() - b.double()).abs() <= 8 * EPS[dtype] * largest
    return is_same(a, b) | (near & a.isfinite() & b.isfinite())


def is_close(a: Tensor, b: Tensor, dtype: Dtype) -> bool:
    """Whether two results have one shape and dtype and are `close` everywhere."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(close(a, b, dtype).all())


def relative(value: Tensor, exact: Tensor) -> Tensor:
    """|value - exact| / max(rms, |exact|) per element, fp64, rms that of the finite ones; inf where one is not finite.

    Where both are the same nan or inf it is 0.

    Raises:
        ValueError: the shapes differ.
    """
    if value.shape != exact.shape:
        raise ValueError(f"shape {tuple(value.shape)} where the reference has {tuple(exact.shape)}")
    right = exact.double()
    finite = right[right.isfinite()]
    scale = right.abs().clamp_min(finite.square().mean().sqrt() if finite.numel() else 0.0)
    off = (value.double() - right).abs()
    off = torch.where(off.isfinite() & right.isfinite(), off / scale, torch.inf)
    return torch.where(is_same(value.double(), right), 0.0, off)


def spread(values: Tensor, generator: torch.Generator) -> Tensor:
    """An eighth of the values times a power of two from 1/16 to 16: a kernel may clamp what normal ones never reach.

    No more, since a product of two such operands must stay inside float16.
    """
    powers = torch.randint(-4, 5, values.shape, generator=generator)
    kept = torch.rand(values.shape, generator=generator) > 1 / 8
    return torch.ldexp(values, powers.masked_fill(kept, 0))


# ---- the sweep over every gate value ---------------------------------------------------------------------------------


def every_value(dtype: Dtype) -> Tensor:
    """All finite values of a 16-bit dtype in ascending order, -0 and 0 both; for float32, those of bfloat16."""
    narrow = torch.float16 if dtype == "float16" else torch.bfloat16
    values = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(narrow)
    finite = values[values.isfinite()]
    order = finite.double().sort(stable=True).indices
    return finite[order].to(getattr(torch, dtype))


def beyond(y: Tensor, gate: Tensor, up: Tensor, activation: Activation, dtype: Dtype) -> Tensor:
    """Where a value is off by more than one ulp and 2^-20·|g·u|, as a mask.

    A result that is rounded after the activation as well is off by (1 + |u|)/2 ulp at most, which is allowed. In
    float32, where an ulp is less than fp32 arithmetic costs, the score decides.
    """
    if dtype == "float32":
        return forward_scores(y, gate, up, activation, dtype) > LIMIT
    g, u = gate.double(), up.double()
    reference = activate(g, activation) * u
    allowed = ulp(reference, dtype) * ((1 + u.abs()) / 2).clamp(min=1.0) + 2.0**-20 * (g * u).abs()
    wrong = (y.double() - reference).abs() > allowed
    return (wrong | ~y.double().isfinite()) & is_inside(reference, dtype)


def is_near(y: Tensor, gate: Tensor, up: Tensor, activation: Activation, dtype: Dtype) -> bool:
    """Whether every value is within HARDWARE_TANH·|g·u| of the function, and half an ulp; nan and inf never are.

    Where the function itself is beyond the dtype, any value is.
    """
    reference = product(gate, up, activation)
    allowed = HARDWARE_TANH * (gate.double() * up.double()).abs() + ulp(reference, dtype)
    near = ((y.double() - reference).abs() <= allowed) & y.isfinite()
    return bool((near | ~is_inside(reference, dtype)).all())
