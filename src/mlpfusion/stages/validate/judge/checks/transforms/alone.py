"""What is wrong with the gradient of an operand that trains alone, in a call that something of PyTorch's transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlpfusion.stages.validate.judge.checks.transforms.differences import differs
from mlpfusion.stages.validate.judge.exam import Found, failed, hazard, is_refusal
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam


def another_alone(exam: Exam, given: Tensors, whole: Tensors, dtype: Dtype, how: str, **options: Any) -> Found | None:
    """That the gradient of one operand is missing or another where no other needs one, if it is.

    Args:
        exam: whose target is asked.
        given: the operands and dy.
        whole: d:NAME of the operands where all of them need a gradient, in calls that are transformed alike.
        dtype: by whose rounding gradients may differ.
        how: the calls are made, in words.
        options: say the same to the worker.
    """
    probe = "alone compiled" if options["within"] == "compile" else "alone"
    try:
        found, _ = exam.ask(probe, given, **options)
    except RaisedError as raised:
        if not is_refusal(raised):
            raise
        return hazard(f"breaks {how} where one operand alone needs a gradient: {raised}", exam.plain)
    for name in exam.names:
        straight = whole.get(f"d:{name}")
        wrong = straight is not None and differs({f"d:{name}": straight}, found, dtype)
        if wrong:
            return failed(f"{how}, where {name} alone needs a gradient, {wrong}", exam.plain)
    return None
