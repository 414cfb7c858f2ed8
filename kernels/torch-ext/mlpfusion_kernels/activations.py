"""The gate activations: their names, their device code and their PyTorch twins."""

# Device functions have Triton's types, not Python's.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.target_info import is_cuda

# Triton's interpreter knows no machine instructions.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


class Row(NamedTuple):
    """One activation: its layer's name, and the operations per element of its formulas below, forward and backward.

    An add, multiply, divide and exp count as one each.
    """

    layer: str
    forward_flops: int
    backward_flops: int


TABLE: dict[str, Row] = {
    "gelu_tanh": Row("GegluTanh", 9, 18),
    "gelu": Row("Geglu", 21, 25),
    "silu": Row("Swiglu", 4, 11),
    "quick_gelu": Row("QuickGeglu", 4, 12),
    "relu": Row("Reglu", 1, 2),
    "relu2": Row("SquaredReglu", 2, 5),
}

ACTIVATIONS: tuple[str, ...] = tuple(TABLE)
FORWARD_FLOPS: dict[str, int] = {name: row.forward_flops for name, row in TABLE.items()}
BACKWARD_FLOPS: dict[str, int] = {name: row.backward_flops for name, row in TABLE.items()}
HEAVIEST: str = max(ACTIVATIONS, key=lambda name: FORWARD_FLOPS[name])  # the most code and registers


@triton.jit
def _exp2(x):
    """2^x of an fp32 block within 2 ulp, 0 below the normal range."""
    if INTERPRETED:
        y = tl.exp2(x)
    elif is_cuda():
        # Without .ftz each exponential brings four instructions for subnormal results, which no activation needs.
        y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    else:
        y = tl.exp2(x)
    return y


@triton.jit
def _reciprocal(x):
    """1/x of an fp32 block within 1 ulp for 1 <= x < 2^126, 0 above."""
    if INTERPRETED:
        y = 1.0 / x
    elif is_cuda():
        # One instruction where a quotient takes eight: the epilogue of a matrix product has no time for those.
        y = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    else:
        y = 1.0 / x
    return y


@triton.jit
def _sigmoid(t):
    """1/(1 + 2^t), also where that is below 2^-126: there it counts, if up is infinite."""
    return 0.25 * _reciprocal(0.25 + 0.25 * _exp2(t))


@triton.jit
def _sigmoid_pair(t):
    """1/(1 + 2^t) and that times 1/(1 + 2^-t), from one exponential that cannot overflow.

    The second as s·(1 - s) would lose all its digits where s rounds to 1.
    """
    e = _exp2(-tl.abs(t))
    r = _reciprocal(1.0 + e)
    return tl.where(t > 0, e * r, r), e * r * r


@triton.jit
def _finite_product(slope, factor, g):
    """slope·factor, but 0 where the slope has vanished: g² inside `factor` overflows long before g does.

    The zero is slope·g, so that an infinite g still gives nan, as the formula does in any precision.
    """
    return tl.where(slope == 0, slope * g, slope * factor)


@triton.jit
def _normal(g):
    """The standard normal distribution Φ(g) and exp(-g²/2), which is its density times √(2π).

    Φ(-|g|) = ½·exp(-g²/2)·P(t) with t = 1/(1 + 0.39·|g|/√2): the form of Abramowitz & Stegun 7.1.26 with one term more,
    fitted for the least largest error of Φ, 4e-9 or a fifteenth of fp32's rounding at ½. Against the library's erf the
    negative tail keeps its digits and the backward shares the exponential: 2 to 5% faster there on an H200.
    """
    e = _exp2(-0.7213475204444817 * g * g)
    t = _reciprocal(1.0 + 0.275771644662753 * tl.abs(g))
    p = 0.4433317686049766 - 0.11376846076784182 * t
    p = -0.31769946249260755 + t * p
    p = 0.3247791526204694 + t * p
    p = 0.04569442660291254 + t * p
    p = t * (0.11766257458406336 + t * p)
    # Below -8.3 PyTorch's ½·(1 + erf) is 0 even in fp64, which decides whether an infinite up gives nan.
    tail = tl.where(g < -8.3, 0.0, e * p)
    return tl.where(g < 0, tail, 1.0 - tail), e


@triton.jit
def activate(g, ACTIVATION: tl.constexpr):
    """act(g) of an fp32 block.

    gelu_tanh is 0.5·g·(1 + tanh z) with z = √(2/π)·(g + 0.044715·g³) (Hendrycks & Gimpel, arXiv 1606.08415), written
    as g·sigmoid(2z): equal, without the cancellation in the negative tail. gelu is g·Φ(g), silu g·sigmoid(g) and
    quick_gelu g·sigmoid(1.702·g), where sigmoid(x) is 1/(1 + 2^t) with t = -x·log2(e), whose factor the constants have
    taken in. relu2 is relu(g)².
    """
    if ACTIVATION == "gelu_tanh":
        t = g * (-2.302208198144325 - 0.1029432395800235 * g * g)
        a = g * _reciprocal(1.0 + _exp2(t))
    elif ACTIVATION == "gelu":
        phi, _ = _normal(g)
        a = g * phi
    elif ACTIVATION == "silu":
        a = g * _sigmoid(-1.4426950408889634 * g)
    elif ACTIVATION == "quick_gelu":
        a = g * _sigmoid(-2.4554669595930156 * g)
    elif ACTIVATION == "relu":
        a = tl.where(g <= 0, 0.0, g)  # keeps nan, which max() would drop
    else:
        tl.static_assert(ACTIVATION == "relu2", "unknown activation")
        r = tl.where(g <= 0, 0.0, g)
        a = r * r
    return a


@triton.jit
def activate_backward(g, v, ACTIVATION: tl.constexpr):
    """act(g) and v·act'(g) of fp32 blocks, where v is the gradient that reaches act(g)."""
    if ACTIVATION == "gelu_tanh":
        g2 = g * g
        s, slope = _sigmoid_pair(g * (-2.302208198144325 - 0.1029432395800235 * g2))
        a = g * s
        d = v * (s + _finite_product(slope, g * (1.5957691216057308 + 0.21406444881780076 * g2), g))
    elif ACTIVATION == "gelu":
        phi, e = _normal(g)
        a = g * phi
        d = v * (phi + g * (0.3989422804014327 * e))
    elif ACTIVATION == "silu":
        s, slope = _sigmoid_pair(-1.4426950408889634 * g)
        a = g * s
        d = v * (s + g * slope)
    elif ACTIVATION == "quick_gelu":
        s, slope = _sigmoid_pair(-2.4554669595930156 * g)
        a = g * s
        d = v * (s + g * (1.702 * slope))  # 1.702·g overflows before g does
    elif ACTIVATION == "relu":
        a = tl.where(g <= 0, 0.0, g)
        d = tl.where(g <= 0, 0.0, v)
    else:
        tl.static_assert(ACTIVATION == "relu2", "unknown activation")
        r = tl.where(g <= 0, 0.0, g)
        a = r * r
        d = tl.where(g <= 0, 0.0, v * (2.0 * g))
    return a, d


@triton.jit
def activate_and_slope(g, ACTIVATION: tl.constexpr):
    """act(g), to the bit what `activate` gives, and act'(g) of fp32 blocks, for results of 16 bits.

    From one exponential where `activate_backward` beside `activate` takes two. sigmoid's slope as s - s² loses digits
    where s is near 1, where it counts for little: act' is off by at most 4e-6, a hundredth of what rounding to 11 bits
    makes.
    """
    if ACTIVATION == "gelu_tanh":
        g2 = g * g
        t = g * (-2.302208198144325 - 0.1029432395800235 * g * g)
        s = _reciprocal(1.0 + _exp2(t))
        a = g * s
        slope = s - s * s
        d = s + _finite_product(slope, g * (1.5957691216057308 + 0.21406444881780076 * g2), g)
    elif ACTIVATION == "gelu":
        phi, e = _normal(g)
        a = g * phi
        d = phi + g * (0.3989422804014327 * e)
    elif ACTIVATION == "silu":
        s = _sigmoid(-1.4426950408889634 * g)
        a = g * s
        d = s + g * (s - s * s)
    elif ACTIVATION == "quick_gelu":
        s = _sigmoid(-2.4554669595930156 * g)
        a = g * s
        d = s + g * (1.702 * (s - s * s))
    elif ACTIVATION == "relu":
        a = tl.where(g <= 0, 0.0, g)
        d = tl.where(g <= 0, 0.0, 1.0)
    else:
        tl.static_assert(ACTIVATION == "relu2", "unknown activation")
        r = tl.where(g <= 0, 0.0, g)
        a = r * r
        d = 2.0 * r
    return a, d


def activate_reference(g: torch.Tensor, activation: str) -> torch.Tensor:
    """act(g) by PyTorch's own operators, in g's dtype."""
    if activation == "gelu_tanh":
        return F.gelu(g, approximate="tanh")
    if activation == "gelu":
        return F.gelu(g)
    if activation == "silu":
        return F.silu(g)
    if activation == "quick_gelu":
        return g * torch.sigmoid(1.702 * g)
    if activation == "relu":
        return F.relu(g)
    if activation == "relu2":
        return F.relu(g).square()
    raise ValueError(unknown_activation(activation))


def activate_backward_reference(g: torch.Tensor, v: torch.Tensor, activation: str) -> torch.Tensor:
    """v·act'(g) by PyTorch's operators, differentiable in g and v to any order."""
    if activation == "gelu_tanh":
        return torch.ops.aten.gelu_backward(v, g, approximate="tanh")  # type: ignore[no-any-return]
    if activation == "gelu":
        return torch.ops.aten.gelu_backward(v, g)  # type: ignore[no-any-return]
    if activation == "silu":
        s = torch.sigmoid(g)  # aten.silu_backward has no derivative of its own
        return v * s * (1 + g * (1 - s))
    if activation == "quick_gelu":
        s = torch.sigmoid(1.702 * g)
        return v * s * (1 + g * (1.702 * (1 - s)))
    if activation == "relu":
        return torch.ops.aten.threshold_backward(v, g, 0)  # type: ignore[no-any-return]
    if activation == "relu2":
        return torch.ops.aten.threshold_backward(v * (2 * g), g, 0)  # type: ignore[no-any-return]
    raise ValueError(unknown_activation(activation))


def unknown_activation(activation: object) -> str:
    """The message for an activation that is none of ACTIVATIONS."""
    return f"unknown activation {activation!r}; known: {', '.join(ACTIVATIONS)}"
