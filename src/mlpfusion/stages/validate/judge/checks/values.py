"""Checks of the values of act(gate)·up against fp64: which function, how exact, and where it rounds."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from mlpfusion.reference import activate
from mlpfusion.spec import ROWS
from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.checks import shapes
from mlpfusion.stages.validate.judge.checks.check import ACT_MUL, BOTH, Check
from mlpfusion.stages.validate.judge.diagnose import rounding_place
from mlpfusion.stages.validate.judge.exam import (
    Found,
    failed,
    grad_name,
    hazard,
    is_refusal,
    passed,
    reported,
    shape_text,
    undecided,
)
from mlpfusion.stages.validate.judge.places import by_width, within
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.judge.exam import Exam

# Whole vectors and not, which may have code of their own; more rows; of a whole MLP many rows and few.
BIASED: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {
    "act_mul": ((4, 4096), (4, 4099), (16, 1024)),
    "mlp": ((160,), (16,)),
}
# Neither gate nor up is large, and half of their product is beyond float16.
PAIRED: Final = 400.0
TILED: Final = "only where many rows have many columns, which are several tiles of both"
MOST_IN_DOUBLE: Final = 1e-12  # relative: the reference is as exact; sums of float64 are off by 1e-15
MOST_BIAS_ULP: Final = 0.25  # a truncating store is at -0.5, a right tanh-GELU within 0.02: bench/false_alarms.py


def function(exam: Exam, dtype: Dtype) -> Found:
    """Which function it is, by every gate value of a 16-bit dtype."""
    found = exam.sweeps.diagnosis(dtype)
    exam.sweeps.note(dtype)
    n = exam.sweeps.of(dtype)[0].gate.numel()
    if found is None:
        few = exam.sweeps.diagnosis_of_few(dtype) if exam.kind == "mlp" else None
        if few is not None:
            return failed(f"in calls of {few[0]} row{'s' * (few[0] > 1)}: {few[1].sentence}")
        return passed(f"{ROWS[exam.activation].label}: none of {n} gate values is beyond the bound")
    if exam.finest == "float32" and dtype != "float32":
        finer = exam.sweeps.diagnosis("float32")
        if finer is not None and finer.where != "function":
            return reported(f"values are beyond the bound; float32 shows why: {finer.sentence}")
        if finer is not None:
            return failed(finer.sentence)
    if found.where != "function":
        return reported(f"values are beyond the bound: {found.sentence}")
    return failed(found.sentence)


def constants(exam: Exam, dtype: Dtype) -> Found:
    """Its constants, in float32: a 16-bit dtype cannot distinguish 0.044 from 0.044715."""
    if dtype != "float32":
        found = exam.sweeps.diagnosis(dtype)
        if found is not None and found.where == "constants":
            return failed(found.sentence)
        return undecided(f"constants cannot be determined in {dtype}, and it takes no float32")
    found = exam.sweeps.diagnosis(dtype)
    exam.sweeps.note(dtype)
    if found is None:
        return passed("the constants are right: no gate value is beyond the bound in float32")
    if found.where == "constants":
        return failed(found.sentence)
    return undecided("it is not the requested function, or not in this precision")


def precision(exam: Exam, dtype: Dtype) -> Found:
    """It computes with the precision of float32 inside."""
    if dtype != "float32":
        return undecided(f"the internal precision cannot be determined in {dtype}, and it takes no float32")
    found = exam.sweeps.diagnosis(dtype)
    exam.sweeps.note(dtype)
    if found is None:
        return passed("it computes in float32 inside")
    if found.where == "precision":
        return failed(found.sentence)
    return undecided("it is not the requested function")


def rounding(exam: Exam, dtype: Dtype) -> Found:
    """Where it rounds: after the activation as well, or once at the end."""
    return reported(rounding_place(*exam.sweeps.unexcused(dtype)[1], exam.activation, dtype))


def ulps(exam: Exam, dtype: Dtype) -> Found:
    """How far results are from fp64, in steps of the dtype: the distribution, not a verdict."""
    exam.sweeps.note(dtype)
    off = torch.cat([bounds.ulps_off(*swept, exam.activation, dtype) for swept in exam.sweeps.unexcused(dtype)])
    limits = (0.5, 1.0, 2.0)
    shares = [float((off <= limit).double().mean()) for limit in limits]
    parts = [f"{share:.2%} within {limit:g}" for share, limit in zip(shares, limits, strict=True)]
    if not off.numel():
        return undecided("no result is left to judge")
    largest = float(off.max())
    figures = {f"within_{limit:g}_ulp": share for share, limit in zip(shares, limits, strict=True)}
    return reported(
        f"of {off.numel()} results {', '.join(parts)} ulp of fp64, the largest {largest:.3g}",
        **figures,
        largest_ulp=_finite(largest),
    )


def store(exam: Exam, dtype: Dtype) -> Found:
    """Its stores round to nearest: results are not off to one side."""
    if exam.sweeps.diagnosis(dtype) is not None:
        return undecided("it is not the requested function")
    said = []
    for shape in exam.some(BIASED[exam.kind]):
        given = exam.operands(dtype, shape, "store")
        try:
            y = exam.forward(given)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            continue
        if exam.kind == "mlp":
            bias = bounds.bias(y, exam.reference(given)["y"], dtype)
        else:
            bias = bounds.bias_in_ulp(y, given["gate"], given["up"], exam.activation, dtype)
        if not abs(bias.worst) <= MOST_BIAS_ULP:
            return failed(f"results are off by {how(bias)}", shape, bias_ulp=_finite(bias.worst))
        said.append(bias.worst)
    if not said:
        return undecided("it refuses every shape tried")
    worst = max(said, key=abs)
    return passed(f"results are off by {worst:+.3f} ulp on average", bias_ulp=worst)


def how(bias: bounds.Bias) -> str:
    """By how much a store is off to one side, and how it rounds."""
    above, below = (0 if abs(side) <= MOST_BIAS_ULP / 2 else int(math.copysign(1, side)) for side in bias)
    rounds = {
        (-1, 1): "it truncates where it should round to nearest",
        (1, -1): "it rounds away from zero",
        (-1, -1): "it rounds down where it should round to nearest",
        (1, 1): "it rounds up where it should round to nearest",
    }.get((above, below), f"it rounds results {'above' if above else 'below'} zero to one side")
    return f"{bias.above:+.2f} ulp on average above zero and {bias.below:+.2f} below: {rounds}"


def elementwise(exam: Exam, dtype: Dtype) -> Found:
    """Every element of random operands is within its bound, at gate scales of 0.01, 1 and 10."""
    worst, failures, refused, tried = 0.0, [], [], 0
    wanted = exam.asked.shapes
    widths: dict[bool, list[int]] = {True: [], False: []}  # of rows that are wrong, and right
    bare: dict[bool, set[bool]] = {True: set(), False: set()}  # whether operands were alone in their memory, likewise
    for shape, scales in [(shape, shapes.scales(shape)) for shape in wanted] if wanted else shapes.cases(exam):
        for place, scale in enumerate(scales):
            given = exam.operands(dtype, shape, "elementwise", scale=scale)
            try:
                y = exam.forward(given, bare=(alone := place % 2 == 1))
            except RaisedError as error:
                if not is_refusal(error) or (wanted and exam.asked.shapes):
                    raise
                refused.append(shape_text(shape))
                break
            tried += 1
            if y.shape != given["gate"].shape:
                return failed(f"returns shape {tuple(y.shape)} for {shape}", shape)
            scores = excuses.scores(exam, _score(exam, given, dtype), y, given)
            largest = float(scores.max()) if scores.numel() else 0.0
            worst = max(worst, largest)
            bare[largest > bounds.LIMIT].add(alone)
            if len(shape) == 2 and shape not in shapes.tiled(exam):  # whose widths no other shape has
                widths[largest > bounds.LIMIT].append(shape[1])
            if largest > bounds.LIMIT:
                failures.append((scores.numel(), shape, place, _worst_element(exam, given, y, scores)))
    if not failures and not wanted:
        wrong, largest = _within_ranges(exam, dtype)
        worst = max(worst, largest)
        if wrong is not None:
            return wrong
    if failures:
        _, shape, _, sentence = min(failures)
        is_tiled = {each for _, each, *_ in failures} <= {*shapes.tiled(exam)} and not wanted
        which = TILED if is_tiled else by_width(widths[True], widths[False])
        if bare[True] == {True} and bare[False] >= {False} and len(failures) > 1:
            which = "only where operands are alone in their memory, as a program's are and most of a judge's are not"
        return failed("; ".join(filter(None, (which, sentence))), shape, worst_score=_finite(worst))
    if not tried:
        return undecided(f"it refuses every shape tried: {', '.join(refused)}")
    also = f"; refused: {', '.join(refused)}" if refused else ""
    return passed(f"worst score {worst:.2f} of {bounds.LIMIT:g}{also}", worst_score=worst)


def _within_ranges(exam: Exam, dtype: Dtype) -> tuple[Found | None, float]:
    """What is wrong where all gates are within some range, if something is, and the worst score."""
    worst = 0.0
    for each, shape in shapes.ranges(exam):
        given = each.of(exam, dtype, shape)
        try:
            y = exam.forward(given)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            break
        scores = excuses.scores(exam, _score(exam, given, dtype), y, given)
        worst = max(worst, float(scores.max()))
        if worst > bounds.LIMIT:
            return failed(f"{each.said}, {_worst_element(exam, given, y, scores)}", worst_score=_finite(worst)), worst
    return None, worst


def _score(exam: Exam, given: dict[str, Tensor], dtype: Dtype) -> Callable[[Tensor], Tensor]:
    return lambda y: bounds.forward_scores(y, given["gate"], given["up"], exam.activation, dtype)


def _worst_element(exam: Exam, given: dict[str, Tensor], y: Tensor, scores: Tensor) -> str:
    at = int(scores.nan_to_num(torch.inf).argmax())
    gate, up, value = (float(tensor.reshape(-1)[at]) for tensor in (given["gate"], given["up"], y))
    right = float(exam.reference(given)["y"].reshape(-1)[at])
    count = int((scores > bounds.LIMIT).sum())
    where = within(scores > bounds.LIMIT)
    if bool(y[scores > bounds.LIMIT].isnan().all()):
        where = f"{where}{', ' * bool(where)}all nan, as memory is here that was never written"
    return (
        f"{count} of {scores.numel()} elements are beyond the bound{', ' * bool(where)}{where}; the worst, at index "
        f"{at}, has a score of {float(scores.reshape(-1)[at]):.3g} (limit {bounds.LIMIT:g}): gate {gate:.6g} and up "
        f"{up:.6g} give {value:.6g}, where {right:.6g} is right"
    )


def specials(exam: Exam, dtype: Dtype) -> Found:
    """nan where fp64 has nan, inf where fp64 overflows: ±0, subnormals, ±inf, nan, the largest numbers."""
    narrow: torch.dtype = getattr(torch, dtype)
    largest, tiny = torch.finfo(narrow).max, bounds.TINY[dtype]
    sizes = [0.0, tiny, 13.0, 20.0, 88.0, PAIRED, 1e4, largest, math.inf]
    gates = [sign * size for size in sizes for sign in (1, -1)] + [math.nan]
    ups = [0.0, -0.0, 1.0, -1.0, tiny, PAIRED, -PAIRED, largest, math.inf, -math.inf, math.nan]
    pairs = torch.tensor(list(itertools.product(gates, ups)), dtype=torch.float64)
    # Written as fp64 and narrowed: a cast of 1e4 to fp16 is exact enough, and of the largest number exact.
    gate, up = pairs[:, 0].to(narrow), pairs[:, 1].to(narrow)
    y = exam.flat({"gate": gate, "up": up})
    given = {"gate": gate, "up": up}
    parted = excuses.part(
        lambda value: _special_faults(exam, value, gate, up, dtype)[0],
        y,
        lambda: excuses.of_eager(exam, "forward", given, "y"),
    )
    excuses.note(exam, parted.excused, y, given, "y")
    if bool(parted.wrong.any()):
        at = int(parted.wrong.nonzero()[0])
        right = float(bounds.product(gate, up, exam.activation)[at])
        return failed(
            f"gate {float(gate[at]):.6g} and up {float(up[at]):.6g} give {float(y[at]):.6g}, where {right:.6g} is "
            f"right ({int(parted.wrong.sum())} of {y.numel()} special pairs)"
        )
    if bool(parted.excused.any()):
        count = int(parted.excused.sum())
        return reported(f"{count} special values differ from fp64, all as eager's do on this device")
    noted = _special_faults(exam, y, gate, up, dtype)[1]
    if bool(noted.any()):
        at = int(noted.nonzero()[0])
        return reported(
            f"{int(noted.sum())} special pairs are inf or finite where fp64 is within an ulp of overflow or an "
            f"intermediate overflows, the first: gate {float(gate[at]):.6g}, up {float(up[at]):.6g}, "
            f"y {float(y[at]):.6g}"
        )
    return passed(f"{y.numel()} special pairs are nan, inf and finite where fp64 is")


def _special_faults(exam: Exam, y: Tensor, gate: Tensor, up: Tensor, dtype: Dtype) -> tuple[Tensor, Tensor]:
    """Masks of what is wrong and of what is only to be noted."""
    g, u, value = gate.double(), up.double(), y.double()
    act = activate(g, exam.activation)
    reference = act * u
    largest = torch.finfo(getattr(torch, dtype)).max
    # Where act(g) underflows in fp32 arithmetic and up is infinite or huge, both are right.
    vanishes = (act.abs() <= bounds.INNER * g.abs() + bounds.TINY[dtype]) & ~(u.abs() <= largest / 2)
    edge = reference.abs() >= largest * (1 - bounds.EPS[dtype])
    overflows = (g * u).abs() > torch.finfo(torch.float32).max
    nan_differs = value.isnan() != reference.isnan()
    inf_differs = (value.isinf() != (edge & ~reference.isnan())) & ~value.isnan() & ~reference.isnan()
    near = (reference.abs() < largest * (1 + bounds.EPS[dtype])) & edge
    excused = vanishes & g.isfinite() & ~reference.isnan()
    noted = inf_differs & (near | (overflows & value.isinf()))
    scores = bounds.forward_scores(y, gate, up, exam.activation, dtype)
    finite_wrong = (scores > bounds.LIMIT) & value.isfinite() & ~vanishes
    wrong_sign = value.isinf() & reference.isfinite().logical_not() & ~reference.isnan() & (value != reference) & edge
    wrong = ((nan_differs | inf_differs) & ~noted) | finite_wrong | (wrong_sign & ~noted)
    return wrong & ~excused, noted & ~excused


def doubles(exam: Exam, dtype: Dtype) -> Found:
    """float64 operands are refused, or give what float64 holds, in gradients too."""
    if exam.asked.dtypes is not None:
        return undecided("float64 is looked at where no dtype is requested")
    given = _doubled(exam)
    try:
        y = exam.forward(given)
    except RaisedError as error:
        if not is_refusal(error):
            raise
        exam.refused.clear()
        return passed(f"float64 is refused: {error}")
    if y.dtype != torch.float64:
        return hazard(f"float64 operands give a result in {str(y.dtype).removeprefix('torch.')}")
    trained = exam.gradients(given) if exam.lack(dtype) is None else None
    results = {"y": y} if trained is None else {**trained[0], "y": y}
    right = exam.reference(given, grad=trained is not None)
    for name, exact in right.items():
        found = results[name]
        off = float(bounds.relative(found, exact).max()) if found.shape == exact.shape else math.inf
        if not off <= MOST_IN_DOUBLE:
            sentence = f"{grad_name(name)} is off by {off:.2g} for float64 operands, in which 1e-16 is usual"
            return hazard(f"{sentence}: it computes in fewer bits where it could refuse them")
    return passed("float64 operands give what float64 holds")


def _doubled(exam: Exam) -> dict[str, Tensor]:
    """Operands and dy whose values no float32 holds."""
    generator = exam.generator("float64")
    given = exam.operands("float32", exam.plain, "float64")
    return {
        name: each.double() * (1 + 2.0**-26 * torch.rand(each.shape, generator=generator, dtype=torch.float64))
        for name, each in given.items()
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


CHECKS: Final = (
    Check("function", "every gate value of a 16-bit dtype, against all functions", BOTH, function, dtypes="each"),
    Check("constants", "65,280 gate values in float32, and a fit of the constants", BOTH, constants),
    Check("precision", "whether errors in float32 are the noise of a smaller dtype", BOTH, precision),
    Check("store", "the mean signed error in ulp", BOTH, store, dtypes="16-bit"),
    Check("specials", "±0, subnormals, ±inf, nan and the largest numbers", ACT_MUL, specials, dtypes="each"),
    Check(
        "elementwise",
        "random operands at three scales in many shapes, and gates of one range, against fp64",
        ACT_MUL,
        elementwise,
        dtypes="each",
    ),
    Check("rounding", "gate values where one rounding and two differ", BOTH, rounding, dtypes="16-bit"),
    Check("double", "float64 operands, which are refused or computed in float64", BOTH, doubles),
    Check("ulps", "the distance of every gate value's result to fp64, in ulp", BOTH, ulps, dtypes="each"),
)
