"""Checks of a whole MLP: y and every gradient, against eager on the same operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.checks import mlp_cases
from mlpfusion.stages.validate.judge.checks.check import MLP, Check
from mlpfusion.stages.validate.judge.exam import Found, failed, hazard, is_refusal, passed, reported, shape_text
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.checks.mlp_cases import Case
    from mlpfusion.stages.validate.judge.exam import Exam, Sizes

# Right 16-bit kernels make 0.33-1.46x of eager's error, fp32 ones up to 2.21x (four shapes, six seeds).
MOST: Final[dict[Dtype, float]] = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0}
# The largest of fewer errors than these is mostly luck: that of right gradients was 1.6 to 2.4 times eager's in 6 of 41
# seeds at 3,712, so it may be twice as far off again.
FEW: Final = 10_000
LUCK: Final = 2.0
TF32_EPS: Final = 2.0**-10
MODES: Final = {"under torch.inference_mode": "inference", "in eval mode": "eval"}
APART: Final = 1e-2  # of a mode: what is left out of a sum is more; or 8 eps, as of another order of the same sums
EXCHANGED: Final = 0.1  # mean error of a gradient that is another's; two of independent weights are about 1 apart


def values(exam: Exam, dtype: Dtype) -> Found:
    """y is at most so many times further from fp64 than eager's."""
    return _against_eager(exam, dtype, ("y",))


def gradients(exam: Exam, dtype: Dtype) -> Found:
    """dx, dWg, dWu and dWd are at most so many times further from fp64 than eager's."""
    exam.need_gradients(dtype)
    found = (
        _hidden(exam, dtype)
        or _sloped(exam, dtype)
        or _against_eager(exam, dtype, ("y", *(f"d:{name}" for name in exam.names)))
    )
    # Which gradient is wrong, and how, random operands say better.
    return found if found.status == "fail" else _of_zeros(exam, dtype) or found


def _hidden(exam: Exam, dtype: Dtype) -> Found | None:
    """That gradients are finite where one element of dy is not, and neither fp64's nor eager's are."""
    for value in (math.nan, math.inf):
        given = exam.operands(dtype, exam.plain, "mlp, strange dy")
        given["dy"].view(-1)[given["dy"].numel() // 2 + 5] = value
        mine = exam.gradients(given)
        if mine is None:
            return None
        right = exam.reference(given, grad=True)
        theirs, _ = exam.ask_peer("eager", "backward", given)
        for name in (f"d:{each}" for each in exam.names):
            lost = mine[0][name].isfinite() & ~right[name].isfinite() & ~theirs[name].isfinite()
            if bool(lost.any()):
                elements = f"{int(lost.sum())} elements of {_called(name)} that depend on it are finite"
                return failed(f"where dy has one {value:g}, {elements}", exam.plain)
    return None


def _of_zeros(exam: Exam, dtype: Dtype) -> Found | None:
    """That where all of dy, of x or of a weight is 0, a result is not that has no other term, if one is not.

    Nothing is left to scale by there: what divides by the largest element divides by 0.
    """
    for zero in ("dy", *exam.names):
        given = exam.operands(dtype, exam.plain, "mlp, zeros")
        given[zero] = torch.zeros_like(given[zero])
        mine = exam.gradients(given)
        if mine is None:
            return None
        theirs, _ = exam.ask_peer("eager", "backward", given)
        for name, right in exam.reference(given, grad=True).items():
            found = mine[0][name]
            off = (found.isfinite().logical_not() | ((right == 0) & (found != 0))) & theirs[name].isfinite()
            if bool(off.any()):
                what = "not finite" if not bool(found[off].isfinite().any()) else "not 0"
                elements = f"{int(off.sum())} of {off.numel()} elements of {_called(name)}"
                return failed(f"where all of {zero} is 0, {elements} are {what}", exam.plain)
    return None


def _sloped(exam: Exam, dtype: Dtype) -> Found | None:
    """That the slope at some gates is another function's, which random errors of a product may hide, if it is."""
    mine = exam.sweeps.slopes(dtype, eager=False)
    at = bounds.Point(mine.gate, mine.up, torch.ones_like(mine.gate))

    def is_off(slope: Tensor) -> Tensor:
        return bounds.gate_scores(slope, at, exam.activation, dtype) > bounds.LIMIT

    wrong = excuses.part(is_off, mine.y, lambda: exam.sweeps.slopes(dtype, eager=True).y).wrong
    if not bool(wrong.any()):
        return None
    first = int(wrong.nonzero()[0])
    found = f"the first {float(mine.gate[first]):g}, which gives {float(mine.y[first]):g}"
    return failed(f"dx has a wrong slope at {int(wrong.sum())} of {wrong.numel()} gates, {found}")


class Distance(NamedTuple):
    """How many times as far from fp64 as eager's a result is, the most that it may be, and its rms error."""

    ratio: float
    limit: float
    rms: float

    @property
    def is_too_far(self) -> bool:
        """Whether it is further than it may be."""
        return self.ratio > self.limit


class Errors:
    """The errors of one output over some cases, the target's and eager's, relative to max(rms, |r|)."""

    def __init__(self) -> None:
        self._mine: list[Tensor] = []
        self._theirs: list[Tensor] = []
        self._independent = 0
        self.worst = 0.0  # of the target, and the case that has it
        self.case: Case | None = None

    def add(self, case: Case, mine: Tensor, theirs: Tensor) -> None:
        """Take in those of a case. All errors of a weight's gradient come from [rows, intermediate] roundings."""
        self._mine.append(mine)
        self._theirs.append(theirs)
        self._independent += min(mine.numel(), math.prod(case.shape) * case.sizes.intermediate)
        largest = float(mine.max()) if mine.numel() else 0.0
        if self.case is None or not largest <= self.worst:
            self.worst, self.case = largest, case

    @property
    def has_measure(self) -> bool:
        """Whether eager is right in half of the values at least, so that its error says what may be expected."""
        return 2 * sum(each.numel() for each in self._theirs) >= sum(each.numel() for each in self._mine)

    def distance(self, dtype: Dtype) -> Distance:
        """By the maximum or the rms error, whichever is nearer to its limit; eager's are floored at 2 eps."""
        mine, theirs = torch.cat(self._mine), torch.cat(self._theirs)
        if not mine.numel():
            return Distance(0.0, MOST[dtype], 0.0)
        floor = 2 * bounds.EPS[dtype] / MOST[dtype]
        rms = float(mine.square().mean().sqrt())
        allowed = (theirs.max(), theirs.square().mean().sqrt()) if theirs.numel() else (0.0, 0.0)
        most = MOST[dtype] * (LUCK if self._independent < FEW else 1.0)
        largest = Distance(float(mine.max()) / max(float(allowed[0]), floor), most, rms)
        usual = Distance(rms / max(float(allowed[1]), floor), MOST[dtype], rms)
        return max(usual, largest, key=lambda each: each.ratio / each.limit)


def in_modes(exam: Exam, dtype: Dtype) -> Found | None:
    """What a mode changes in a wide MLP or one of odd sizes, if it does."""
    if exam.kind != "mlp" or exam.asked.shapes:
        return None
    sizes: tuple[Sizes, ...] = mlp_cases.IN_MODES
    if exam.asked.quick:
        exam.left_out["eval and inference mode at most sizes of MLPs"] = None
        sizes = sizes[:1]
    for own, rows in ((own, rows) for own in sizes for rows in mlp_cases.IN_MODES_ROWS):
        given = exam.operands(dtype, (rows,), "inference", sizes=own)
        where = f" ({rows} row{'s' * (rows > 1)}, hidden_size {own.hidden}, intermediate_size {own.intermediate})"
        try:
            plain = exam.forward(given)
        except RaisedError as raised:
            if not is_refusal(raised):
                raise
            continue
        for how, mode in MODES.items():
            try:
                y = exam.forward(given, mode=mode)
            except RaisedError as raised:
                if not is_refusal(raised):
                    raise
                return hazard(f"breaks {how}{where}: {raised}", (rows,))
            if y.shape != plain.shape:
                return failed(f"{how} y has shape {tuple(y.shape)}{where}", (rows,))
            off = float(bounds.relative(y, plain).max())
            if not off <= max(APART, 8 * bounds.EPS[dtype]):
                return failed(f"{how} y is off by {off:.2g}{where}", (rows,))
    return None


def _against_eager(exam: Exam, dtype: Dtype, outputs: tuple[str, ...]) -> Found:
    worst, worst_output = Distance(0.0, MOST[dtype], 0.0), outputs[0]
    refused: list[str] = []
    unmeasured: list[str] = []
    for group in mlp_cases.cases(exam, dtype, grad=outputs != ("y",)):
        found = {name: Errors() for name in outputs}
        for case in group:
            wrong = _compared(exam, dtype, case, found, refused)
            if wrong is not None:
                return failed(f"{wrong}{_where(exam, case)}", case.shape)
        for name, errors in found.items():
            if errors.case is None:
                continue
            distance = errors.distance(dtype)
            if not math.isfinite(distance.ratio):
                sentence = f"{_called(name)} has values that are nan or inf"
                return failed(sentence + _where(exam, errors.case), errors.case.shape)
            if not errors.has_measure:
                unmeasured.append(f"{_called(name)}{_where(exam, errors.case)}")
                continue
            if distance.ratio / distance.limit > worst.ratio / worst.limit:
                worst, worst_output = distance, name
            if distance.is_too_far:
                sentence = _too_far(name, distance, dtype) + _where(exam, errors.case)
                return failed(sentence, errors.case.shape, ratio_to_eager=distance.ratio)
    also = f"; refused sizes: {', '.join(dict.fromkeys(refused))}" if refused else ""
    if unmeasured:
        also += f"; eager is wrong in most of {', '.join(unmeasured)}, which was looked at for nan and inf alone"
    return passed(
        f"at most {worst.ratio:.2f}x eager's error ({_called(worst_output)}), limit {worst.limit:g}x{also}",
        ratio_to_eager=worst.ratio,
    )


def _compared(exam: Exam, dtype: Dtype, case: Case, found: dict[str, Errors], refused: list[str]) -> str | None:
    """Adds the errors of a case to `found`, or its sizes to those that are `refused`; what is wrong in words."""
    grad = tuple(found) != ("y",)
    given = case.of(exam, dtype)
    bare = sum(case.shape) % 2 == 1
    try:
        mine, _ = exam.backward(given, bare=bare) if grad else exam.ask("forward", given, bare=bare)
    except RaisedError as raised:
        if not is_refusal(raised) or (case.sizes == exam.sizes and case.shape in mlp_cases.SHAPES):
            raise
        refused.append("x".join(map(str, case.sizes)) if case.sizes != exam.sizes else f"{shape_text(case.shape)} rows")
        return None
    theirs, _ = exam.ask_peer("eager", "backward" if grad else "forward", given)
    right = exam.reference(given, grad=grad)
    if grad and _are_exchanged(mine, right):
        return "dWg and dWu are exchanged"
    for name, errors in found.items():
        if mine[name].shape != right[name].shape:
            return f"{_called(name)} has another shape"
        both = excuses.beside_eager(exam, mine[name], theirs[name], right[name], given, of=name, dtype=dtype)
        errors.add(case, *both)
    return None


def _are_exchanged(mine: Tensors, right: Tensors) -> bool:
    """Whether the gradients of the weights of gate and up are each the other's: two of random weights differ by all."""
    pairs = (("d:wg", "d:wu"), ("d:wu", "d:wg"))
    return all(mine[name].shape == right[other].shape for name, other in pairs) and all(
        float(bounds.relative(mine[name], right[other]).mean()) < EXCHANGED for name, other in pairs
    )


def _where(exam: Exam, case: Case) -> str:
    """What a case has that the first one has not."""
    said = []
    if case.shape in mlp_cases.FALLING[1:]:
        said.append(f"{math.prod(case.shape)} rows, after a call of more")
    if case.shape in mlp_cases.FEW or case.shape in {
        *mlp_cases.TRAINED,
        *(rows for _, rows in mlp_cases.DEEP),
        mlp_cases.MANY,
        mlp_cases.MANY_ON_GPU,
    }:
        said.append(f"{math.prod(case.shape)} rows")
    if case.sizes != exam.sizes:
        said.append(f"hidden_size {case.sizes.hidden}, intermediate_size {case.sizes.intermediate}")
    if case.varied:
        said.append(f"with {case.varied}")
    return f" ({', '.join(said)})" * bool(said)


def _too_far(name: str, found: Distance, dtype: Dtype) -> str:
    sentence = f"{_called(name)} is {found.ratio:.3g}x as far from fp64 as eager's (limit {found.limit:g}x)"
    if dtype == "float32" and TF32_EPS / 32 < found.rms < 2 * TF32_EPS:
        return f"{sentence}: with an rms error of {found.rms:.2g} its products are TF32's, or of float16 operands"
    return sentence


def _called(name: str) -> str:
    return "y" if name == "y" else {"x": "dx", "wg": "dWg", "wu": "dWu", "wd": "dWd"}[name[2:]]


def tf32(exam: Exam, dtype: Dtype) -> Found:
    """It leaves the TF32 switches as it found them: off."""
    _, facts = exam.ask("forward", exam.operands(dtype, (16,), "tf32"))
    if facts["tf32"]:
        return reported("a call switches TF32 on for the whole process")
    return passed("TF32 is off before and after a call")


CHECKS: Final = (
    Check("mlp-values", "y against fp64, beside eager's error", MLP, values, dtypes="each"),
    Check("mlp-gradients", "dx, dWg, dWu and dWd against fp64, beside eager's error", MLP, gradients, dtypes="each"),
    Check("tf32", "PyTorch's TF32 switches after a call", MLP, tf32),
)
