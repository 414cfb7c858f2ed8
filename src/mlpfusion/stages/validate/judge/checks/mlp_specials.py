"""Checks nan and infinities in x and in the weights of a whole MLP: they reach what depends on them, and no more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.checks.check import MLP, Check
from mlpfusion.stages.validate.judge.exam import Found, failed, is_refusal, passed
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.judge.exam import Exam

ROWS: Final = (8,)
AT: Final = (3, 5)  # the row and column of the strange element
CLOSE: Final = 0.25  # of max(rms, |r|): a value that something strange reached is off by its own size


class Strange(NamedTuple):
    """One element of one operand that is no number."""

    name: str
    value: float


CASES: Final = tuple(Strange(name, value) for name in ("x", "wg", "wu", "wd") for value in (math.nan, math.inf))


def specials(exam: Exam, dtype: Dtype) -> Found:
    """nan or inf in one element of an operand makes the results that depend on it not finite, and no others."""
    judged = 0
    for case in CASES:
        given = exam.operands(dtype, ROWS, "mlp specials")
        given[case.name][AT] = case.value
        try:
            y = exam.forward(given)
        except RaisedError as raised:
            if not is_refusal(raised):
                raise
            continue
        judged += 1
        right = exam.reference(given)["y"]
        if y.shape != right.shape:
            return failed(f"returns shape {tuple(y.shape)} for {tuple(right.shape)}", ROWS)
        wrong = _wrong(exam, given, y, right)
        if wrong is not None:
            return failed(f"where {case.name} has one {case.value:g}, {wrong}", ROWS)
    return passed(f"nan and inf reach what depends on them, and no more ({judged} of {len(CASES)} places taken)")


def _wrong(exam: Exam, given: dict[str, Tensor], y: Tensor, right: Tensor) -> str | None:
    def hidden(value: Tensor) -> Tensor:
        return value.isfinite() & ~right.isfinite()

    def reached(value: Tensor) -> Tensor:
        return right.isfinite() & ~(bounds.relative(value, right) <= CLOSE)

    for is_off, what in ((hidden, "finite that depend on it"), (reached, "wrong that do not depend on it")):
        parted = excuses.part(is_off, y, lambda: excuses.of_eager(exam, "forward", given, "y"))
        if bool(parted.wrong.any()):
            at = tuple(parted.wrong.nonzero()[0].tolist())
            return f"{int(parted.wrong.sum())} of {y.numel()} results are {what}, the first at {at}: {float(y[at]):g}"
    return None


CHECKS: Final = (Check("mlp-specials", "one nan or inf in x and in each weight", MLP, specials, dtypes="each"),)
