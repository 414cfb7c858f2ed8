"""Identifies the function that a kernel computes, from its values over every gate with up near 1."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import torch
from torch import Tensor

from mlpfusion.reference import CUBIC, FORMULAS, ROOT, Sigmoid, activate
from mlpfusion.spec import ACTIVATIONS, ROWS, Activation
from mlpfusion.stages.validate.judge import bounds, excuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.spec import Dtype

# The functions of one family, A·g·sigmoid(a·g + b·g³), and what comes of them by a wrong constant.
FAMILY: Final = {name: each for name, each in FORMULAS.items() if isinstance(each, Sigmoid)}
SAME: Final[dict[Dtype, float]] = {"float32": 2e-5, "float16": 3e-3, "bfloat16": 2e-2}  # what the fit can distinguish
# Rounding to the dtype moves sigmoid's value by an eighth to a half of its eps; a coarse tanh moves it by 2.5e-4.
MISFIT: Final[dict[Dtype, float]] = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}
# Wrong values in so few ranges of gates are no noise, which is wrong here and there; some may be right by chance.
MOST_RANGES: Final = 4
GAP: Final = 8  # values of gate, of which there are hundreds from a power of two to the next
FEWEST_IN_RANGES: Final = 16
NOISY: Final = 0.1  # of the errors of neighbours have other signs where a lower precision makes them
MOST_IN_RANGES: Final = 0.5  # of all values: beyond, it is another function
IN_UP: Final = 0.1  # up's coefficients are known to this, in bfloat16 as well


Where = Literal["function", "constants", "precision"]


class Diagnosis(NamedTuple):
    """What is wrong with a function, and the sentence that says so.

    `where`: it is another "function", its "constants" are off, or its "precision" is too low.
    """

    where: Where
    sentence: str


class Fit(NamedTuple):
    """A·g·sigmoid(a·g + b·g³) through a kernel's values, and the largest misfit of the sigmoid's value."""

    factor: float
    a: float
    b: float
    misfit: float


def diagnose(
    y: Tensor,
    gate: Tensor,
    up: Tensor,
    activation: Activation,
    dtype: Dtype,
    *,
    eager: Callable[[Activation], Tensor | None] | None = None,
) -> Diagnosis | None:
    """Why `y` is not act(gate)·up, or None if it is: all values of `bounds.every_value`, up constant and near 1.

    What PyTorch's operators give as wrongly says nothing of `y`. `eager` gives their results by the activation, or None
    where there are none; without it they run here.
    """
    eager = eager or functools.partial(excuses.pytorch, gate, up)
    judge = functools.partial(against, y, gate, up, dtype=dtype, eager=eager)
    own = judge(activation)
    off = int(own.wrong.sum())
    if off == 0:
        return None
    parted = {name: own if name == activation else judge(name) for name in ACTIVATIONS}
    counts = {name: int(each.wrong.sum()) for name, each in parted.items()}
    kept = ~own.excused
    y, gate, up = y[kept], gate[kept], up[kept]
    total = gate.numel()
    others = [name for name, count in counts.items() if count == 0]
    if others:
        return Diagnosis("function", _other(others[0], activation, off))
    if not bool(y.double().isfinite().any()):
        lost = ": all are nan, as memory is that was never written" if bool(y.isnan().all()) else ""
        return Diagnosis("function", f"no result is finite{lost}")
    if not bool(y.double().nan_to_num().any()):
        return Diagnosis("function", "every result is 0")
    flushed = _flushed(y, gate, up, activation, dtype=dtype, wrong=own.wrong[kept])
    if flushed is not None:
        return Diagnosis("function", flushed)
    values = y.double() / up.double()
    if _is_exchanged(values, gate.double(), up.double(), activation, dtype):
        return Diagnosis(
            "function", f"gate and up are exchanged: every value is act(up)·gate ({off} are beyond the bound)"
        )
    fit = _fit(values, gate.double())
    if fit is not None and fit.misfit < MISFIT[dtype]:
        constants = _constants(fit, activation, SAME[dtype], is_fine=dtype == "float32")
        if constants is not None:
            return constants
    is_near = ROWS[activation].smoothness == math.inf and bounds.is_near(y, gate, up, activation, dtype)
    low = _low_precision(values, gate.double(), activation, is_near=is_near) if dtype == "float32" else None
    said: tuple[tuple[Where, str | None], ...] = (
        ("function", _in_ranges(values, gate, activation, own.wrong[kept])),
        ("precision", low),
        ("function", _overflowing(y, gate, up, activation, dtype)),
    )
    for where, sentence in said:
        if sentence is not None:
            return Diagnosis(where, sentence)
    if is_near:
        return Diagnosis(
            "precision" if dtype == "float32" else "function",
            f"{off} of {total} values are beyond the bound, all within {bounds.HARDWARE_TANH:g}·|g|: this is "
            f"{ROWS[activation].label} by a hardware tanh approximation (tanh.approx) or by one as coarse"
            + ("" if dtype == "float32" else ", or with a constant that is off, which float32 would show"),
        )
    best = min(counts, key=lambda name: counts[name])
    return Diagnosis(
        "function",
        f"an unknown function: {counts[best]} of {total} values are beyond even {ROWS[best].label}, the nearest",
    )


def against(
    y: Tensor,
    gate: Tensor,
    up: Tensor,
    activation: Activation,
    *,
    dtype: Dtype,
    eager: Callable[[Activation], Tensor | None],
) -> excuses.Parted:
    """The values that are beyond the bound if they are taken for this activation's."""
    return excuses.part(lambda value: bounds.beyond(value, gate, up, activation, dtype), y, lambda: eager(activation))


def _overflowing(y: Tensor, gate: Tensor, up: Tensor, activation: Activation, dtype: Dtype) -> str | None:
    """Describes values that are nan or inf from a gate on where squares and cubes are far from overflow."""
    stray = ~y.double().isfinite() & bounds.is_inside(bounds.product(gate, up, activation), dtype)
    nearest = float(gate[stray].double().abs().min()) if bool(stray.any()) else math.inf
    if nearest >= 1e3:
        return None
    return (
        f"{int(stray.sum())} of {gate.numel()} gate values give nan or inf where the result is finite, from |gate| = "
        f"{nearest:.4g} on: an exponential overflows?"
    )


def _flushed(y: Tensor, gate: Tensor, up: Tensor, activation: Activation, *, dtype: Dtype, wrong: Tensor) -> str | None:
    """That all wrong values are 0 where the result or the gate is subnormal, if so."""
    tiny = torch.finfo(getattr(torch, dtype)).tiny
    result = bounds.product(gate, up, activation).abs() < tiny
    if not bool(((y == 0) & (result | (gate.double().abs() < tiny)))[wrong].all()):
        return None
    what = "results" if bool(result[wrong].all()) else "gates"
    return (
        f"subnormal numbers are flushed: {int(wrong.sum())} of {gate.numel()} values are 0, all of {what} below the "
        f"smallest normal number, {tiny:.3g}"
    )


def _is_exchanged(values: Tensor, gate: Tensor, up: Tensor, activation: Activation, dtype: Dtype) -> bool:
    middle = (gate.abs() > 2.0**-6) & (gate.abs() < 64)
    expected = gate * activate(up, activation) / up
    return bool(((values - expected).abs()[middle] <= 2 * bounds.EPS[dtype] * expected.abs()[middle]).all())


def _other(found: Activation, wanted: Activation, off: int) -> str:
    return (
        f"this is another function: every value is {ROWS[found].label}, where {ROWS[wanted].label} was requested "
        f"({off} values are beyond its bound); --activation {found} would judge it as that"
    )


def _fit(values: Tensor, gate: Tensor) -> Fit | None:
    large = (gate >= 16) & (gate <= 64) & values.isfinite()
    if not bool(large.any()):
        return None
    factor = float((values[large] / gate[large]).median())
    if not math.isfinite(factor) or abs(factor) < 1e-3:
        return None
    medium = ((gate.abs() >= 0.25) & (gate.abs() <= 2)).nonzero().squeeze(1)
    g = gate[medium]
    share = values[medium] / (factor * g)
    if not bool(((share > 0) & (share < 1)).all()):
        return None
    slope = torch.logit(share) / g
    columns = torch.stack((torch.ones_like(g), g * g), dim=1)
    weights = (share * (1 - share) * g).abs()[:, None]  # the share of a rounding in the logit
    a, b = torch.linalg.lstsq(columns * weights, slope[:, None] * weights).solution.squeeze(1).tolist()
    misfit = ((slope - a - b * g * g).abs() * weights.squeeze(1)).max()
    return Fit(factor, float(a), float(b), float(misfit))


def _constants(fit: Fit, activation: Activation, tolerance: float, *, is_fine: bool) -> Diagnosis | None:
    """Which constant of a function of the family is off, if one is. All but the factor needs a fine fit."""
    right = FAMILY.get(activation)
    if right is None:
        return None
    wrong = []
    if abs(fit.factor - 1) > tolerance:
        wrong.append(_factor(fit.factor, is_tanh=bool(right.b)))
    if not is_fine:
        return Diagnosis("constants", wrong[0]) if wrong else None
    is_cubic = abs(fit.b) > 20 * tolerance
    if right.b and not is_cubic:
        like = [name for name, each in FAMILY.items() if not each.b and abs(fit.a - each.a) < 50 * tolerance]
        named = f", which is {ROWS[like[0]].label}" if like else ""
        found = f"this is g·sigmoid({fit.a:.4g}·g){named}, not {ROWS[activation].label}"
        return Diagnosis("function", "; ".join([*wrong, found]))
    if not right.b:
        if abs(fit.a - right.a) > 10 * tolerance or is_cubic:
            argument = "g" if right.a == 1 else f"{right.a:g}·g"
            wrong.append(f"the sigmoid's argument is {fit.a:.5g}·g + {fit.b:.4g}·g³ where {argument} belongs")
    else:
        root, cubic = fit.a / 2, fit.b / fit.a
        if abs(root - ROOT) > 2 * tolerance:
            wrong.append(f"the factor √(2/π) = {ROOT:.6f} of tanh's argument is {root:.5g}")
        if abs(cubic - CUBIC) > 10 * tolerance:
            wrong.append(f"the cubic coefficient is {cubic:.4g} where {CUBIC} belongs")
    return Diagnosis("constants", "; ".join(wrong)) if wrong else None


def _factor(factor: float, *, is_tanh: bool) -> str:
    if not is_tanh:
        return f"every value is {factor:.4g} times what it should be"
    if abs(factor - 2) < 1e-3:
        return "every value is twice what it should be: the factor 0.5 is missing"
    return (
        f"every value is {factor:.4g} times what it should be, as if the factor 0.5 in front of g·(1 + tanh) were "
        f"{factor / 2:.4g}"
    )


def _in_ranges(values: Tensor, gate: Tensor, activation: Activation, wrong: Tensor) -> str | None:
    """The few ranges of gates that hold all wrong values and next to no right one, if there are such.

    So a function looks that is cut off, or a table or a polynomial beyond its range; noise is wrong here and there.
    """
    order = gate.argsort()
    gates, flags = gate[order], wrong[order]
    places = flags.nonzero().squeeze(1)
    if not MOST_IN_RANGES * gates.numel() > places.numel() >= FEWEST_IN_RANGES:
        return None
    ends = (places.diff() > GAP).nonzero().squeeze(1)
    firsts = torch.cat((places[:1], places[ends + 1])).tolist()
    lasts = torch.cat((places[ends], places[-1:])).tolist()
    held = sum(last - first + 1 for first, last in zip(firsts, lasts, strict=True))
    if len(firsts) > MOST_RANGES or places.numel() < 0.9 * held:
        return None
    error = (values - activate(gate.double(), activation))[order][flags]
    if float((error[1:].sign() != error[:-1].sign()).double().mean()) > NOISY:
        return None
    named = [f"from {float(gates[a]):.3g} to {float(gates[b]):.3g}" for a, b in zip(firsts, lasts, strict=True)]
    return (
        f"it is {ROWS[activation].label}, but for gates {' and '.join(named)}: there it is off by up to "
        f"{float(error.abs().max()):.2g}"
    )


def _low_precision(values: Tensor, gate: Tensor, activation: Activation, *, is_near: bool) -> str | None:
    """Errors that change sign from value to value are those of a lower precision, not of another function."""
    error = (values - activate(gate, activation)) / gate
    middle = error[(gate.abs() >= 2.0**-6) & (gate.abs() <= 8)]
    middle = middle[middle != 0]
    if middle.numel() < 100 or not bool(middle.isfinite().all()):
        return None
    changes = float((middle[1:].sign() != middle[:-1].sign()).double().mean())
    size = float(middle.square().mean().sqrt())
    if changes < NOISY or not 2.0**-18 < size < 2.0**-4:  # below is the noise of float32 itself
        return None
    digits = -math.log2(size)
    # A rounding to p bits is off by about 2^-(p + 2) of g in rms; roundings inside add to it. One of the result alone
    # is relative to the result and vanishes in the negative tail; what goes on inside tanh does not.
    tail = error[(gate >= -5) & (gate <= -3)]
    inside = float(tail.square().mean().sqrt()) > size / 16
    if inside and is_near:
        held = "a hardware tanh approximation (tanh.approx), or of float16 arithmetic inside"
    else:
        held = "bfloat16 (8 bits)" if digits < 11.5 else "float16 (11 bits)" if digits < 15 else "less than float32"
    return f"the errors are noise of 2^-{digits:.1f} relative to g: they are those of {held}"


def in_up(low: Tensor, high: Tensor, gate: Tensor, ups: tuple[float, float], activation: Activation) -> str | None:
    """That values at two ups, of the same gates, are act(gate)·(up + b) or do not depend on up, if so.

    Any other factor of up is that of a power as well, which two ups do not tell apart.
    """
    act = activate(gate.double(), activation)
    kept = (gate.double().abs() >= 0.5) & (gate.double().abs() <= 2) & low.isfinite() & high.isfinite()
    first, second = ((each.double() / act)[kept] for each in (low, high))
    if not first.numel():
        return None
    slopes = (second - first) / (ups[1] - ups[0])
    slope = float(slopes.median())
    rests = first - slope * ups[0]
    rest = float(rests.median())
    tight = max(float((slopes - slope).abs().max()), float((rests - rest).abs().max()))
    if abs(rest) < IN_UP or tight > IN_UP:
        return None
    if abs(slope) < IN_UP / 4:
        return f"every value is {rest:.3g} times act(gate), whatever up is, where act(gate)·up is right"
    if abs(slope - 1) >= IN_UP / 4:
        return None
    return f"every value is act(gate)·(up {'+' if rest > 0 else '-'} {abs(rest):.3g}), where act(gate)·up is right"


def rounding_place(y: Tensor, gate: Tensor, up: Tensor, activation: Activation, dtype: Dtype) -> str:
    """Whether a 16-bit result was rounded once, or after the activation as well: from the values where it matters."""
    narrow: torch.dtype = getattr(torch, dtype)
    exact = activate(gate.double(), activation)
    u = up.double()
    once, twice = (exact * u).to(narrow), (exact.to(narrow).double() * u).to(narrow)
    telling = (once != twice) & bounds.is_inside(exact * u, dtype) & (exact.abs() > 2.0**-10)
    n = int(telling.sum())
    as_once, as_twice = (int((y[telling] == each[telling]).sum()) for each in (once, twice))
    if as_once > 0.95 * n:
        return f"rounds once, at the end, as Inductor does ({as_once} of {n} telling values)"
    if as_twice > 0.95 * n:
        return f"rounds after the activation and again at the end, as eager and Liger do ({as_twice} of {n})"
    return f"rounds neither once at the end ({as_once} of {n} telling values) nor after the activation ({as_twice})"
