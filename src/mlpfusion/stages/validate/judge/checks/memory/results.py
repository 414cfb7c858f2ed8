"""Checks that a result is the caller's to keep: no later call writes over it, or gives it again."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import torch

from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks.check import LARGE_OPERANDS
from mlpfusion.stages.validate.judge.exam import Found, failed, is_refusal, passed
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

OTHERS: Final = 16  # calls after which an earlier result must be as it was: buffers may take turns
# One element of an operand is so much larger in the next call, by which a result that is given again shows.
RAISED: Final = 8.0
ONE_ROW: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {"act_mul": ((1, 256),), "mlp": ((1,), (1, 1))}


def reuse(exam: Exam, dtype: Dtype) -> Found:
    """A result is the caller's to keep: the next call leaves it alone."""
    for shape, mode in itertools.product((*ONE_ROW[exam.kind], LARGE_OPERANDS[exam.kind]), (None, "eval")):
        wrong = _overwrites(exam, dtype, shape, mode)
        if wrong is not None:
            return wrong
    given = exam.operands(dtype, exam.plain, "reuse")
    other = exam.operands(dtype, exam.plain, "reused")
    almost = {name: _almost(given[name], given[exam.names[0]]) for name in exam.names}
    both = given | {f"other:{name}": other[name] for name in exam.names}
    results, facts = exam.ask("reuse", both | {f"almost:{name}": each for name, each in almost.items()}, others=OTHERS)
    before = results["before"].nan_to_num()
    if facts["at"]:
        which = "the next call" if facts["at"] == 1 else f"call {facts['at']} after it"
        buffers = "both are one buffer" if facts["at"] == 1 else f"{facts['at']} buffers take turns"
        return failed(f"{which} overwrites an earlier result: {buffers}", exam.plain)
    if torch.equal(before, results["second"].nan_to_num()):
        return failed("other operands give the earlier result again", exam.plain)
    for name, raised in almost.items():
        again = results.get(f"almost:{name}")
        if again is None or not torch.equal(before, again.nan_to_num()) or not _differs(exam, given, {name: raised}):
            continue
        exam.forward(other)  # what it kept is of these now
        if not torch.equal(before, exam.forward(given | {name: raised}).nan_to_num()):  # else it computes that wrongly
            what = f"operands that differ in one element of {name} give the earlier result again"
            return failed(f"{what}: it is kept where it should be computed", exam.plain)
    return passed("an earlier result is left alone by later calls")


def _overwrites(exam: Exam, dtype: Dtype, shape: tuple[int, ...], mode: str | None) -> Found | None:
    """That one of the next two calls in a mode overwrites a result, if it does."""
    given, other = (exam.operands(dtype, shape, purpose) for purpose in ("reuse", "reused"))
    both = given | {f"other:{name}": other[name] for name in exam.names}
    try:
        _, facts = exam.ask("reuse", both, others=2, mode=mode)
    except RaisedError as error:
        if not is_refusal(error):
            raise
        return None
    in_mode = " in eval mode" if mode else ""
    return failed(f"call {facts['at']} after it overwrites an earlier result{in_mode}", shape) if facts["at"] else None


def _almost(value: Tensor, like: Tensor) -> Tensor:
    """`value` with one element larger, where `like` has its largest if both have one shape, else in the middle."""
    at = int(like.double().argmax()) if value.shape == like.shape else value.numel() // 2
    changed = value.clone()
    changed.view(-1)[at] = float(value.view(-1)[at].abs()) + RAISED
    return changed


def _differs(exam: Exam, given: Tensors, changed: Tensors) -> bool:
    """Whether the right results differ by more than a rounding."""
    first, second = (exam.reference(each)["y"] for each in (given, given | changed))
    return not bool(bounds.close(second, first, "bfloat16").all())
