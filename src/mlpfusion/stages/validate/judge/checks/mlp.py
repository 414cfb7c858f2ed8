"""Checks of a whole MLP: y and every gradient, against eager on the same operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.checks.check import MLP, Check
from mlpfusion.stages.validate.judge.exam import Found, Sizes, failed, is_refusal, passed, reported
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.judge.exam import Exam

# Rows of x. y then has 10,240 elements or more: the largest error of few is mostly luck.
SHAPES: Final = ((160,), (3, 67), (2, 2, 41))
# The same at other sizes: multiples of 8 but of no tile, of nothing at all, and a square one that is more than one tile
# wide.
OTHERS: Final = ((Sizes(72, 136), (160,)), (Sizes(67, 131), (160,)), (Sizes(320, 320), (33,)))
# Sums so long that adding up in 16 bits shows (the control long_sums_in_16_bits).
LONG: Final = ((Sizes(64, 4096), (160,)),)
# Right 16-bit kernels make 0.33-1.46x of eager's error, fp32 ones up to 2.21x (four shapes, six seeds).
MOST: Final[dict[Dtype, float]] = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0}
TF32_EPS: Final = 2.0**-10


def values(exam: Exam, dtype: Dtype) -> Found:
    """y is at most so many times further from fp64 than eager's."""
    return _against_eager(exam, dtype, ("y",))


def gradients(exam: Exam, dtype: Dtype) -> Found:
    """dx, dWg, dWu and dWd are at most so many times further from fp64 than eager's."""
    exam.need_gradients(dtype)
    return _against_eager(exam, dtype, ("y", *(f"d:{name}" for name in exam.names)))


def _against_eager(exam: Exam, dtype: Dtype, outputs: tuple[str, ...]) -> Found:
    worst, worst_output = 0.0, outputs[0]
    grad = outputs != ("y",)
    probe = "backward" if grad else "forward"
    refused = []
    for sizes, shape in _cases(exam, dtype):
        given = exam.operands(dtype, shape, "mlp", sizes=sizes)
        try:
            mine, _ = exam.backward(given) if grad else exam.ask("forward", given)
        except RaisedError as raised:
            if not is_refusal(raised) or sizes == exam.sizes:
                raise
            refused.append("x".join(map(str, sizes)))
            continue
        theirs, _ = exam.ask_peer("eager", probe, given)
        right = exam.reference(given, grad=grad)
        for name in outputs:
            if mine[name].shape != right[name].shape:
                return failed(f"{_called(name)} has another shape", shape)
            errors = excuses.beside_eager(exam, mine[name], theirs[name], right[name], given, of=name, dtype=dtype)
            ratio, size = _ratio(*errors, dtype)
            if not math.isfinite(ratio):
                return failed(f"{_called(name)} has values that are nan or inf", shape)
            if ratio > worst:
                worst, worst_output = ratio, name
            if ratio > MOST[dtype]:
                sentence = _too_far(name, ratio, size, dtype)
                if sizes != exam.sizes:
                    sentence += f" (hidden_size {sizes.hidden}, intermediate_size {sizes.intermediate})"
                return failed(sentence, shape, ratio_to_eager=ratio)
    also = f"; refused sizes: {', '.join(refused)}" if refused else ""
    return passed(
        f"at most {worst:.2f}x eager's error ({_called(worst_output)}), limit {MOST[dtype]:g}x{also}",
        ratio_to_eager=worst,
    )


def _cases(exam: Exam, dtype: Dtype) -> list[tuple[Sizes, tuple[int, ...]]]:
    """The sizes and shapes of x that are judged; the exam's sizes are those that are taken."""
    if exam.asked.shapes:
        return [(sizes, shape) for shape in exam.asked.shapes for sizes in (exam.sizes, *(each for each, _ in OTHERS))]
    return [*((exam.sizes, shape) for shape in SHAPES), *OTHERS, *(() if dtype == "float32" else LONG)]


def _ratio(mine: Tensor, theirs: Tensor, dtype: Dtype) -> tuple[float, float]:
    """The larger of the ratios of maximum and rms error to eager's, floored at 2 eps, and the rms error."""
    if not mine.numel():
        return 0.0, 0.0
    floor = 2 * bounds.EPS[dtype] / MOST[dtype]
    rms = float(mine.square().mean().sqrt())
    allowed = (theirs.max(), theirs.square().mean().sqrt()) if theirs.numel() else (0.0, 0.0)
    return max(float(mine.max()) / max(float(allowed[0]), floor), rms / max(float(allowed[1]), floor)), rms


def _too_far(name: str, ratio: float, size: float, dtype: Dtype) -> str:
    sentence = f"{_called(name)} is {ratio:.3g}x as far from fp64 as eager's (limit {MOST[dtype]:g}x)"
    if dtype == "float32" and TF32_EPS / 32 < size < 2 * TF32_EPS:
        return f"{sentence}: with an rms error of {size:.2g} its products are TF32's, or of float16 operands"
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
