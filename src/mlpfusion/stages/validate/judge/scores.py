"""Scores the results of an act·mul by their names, and says whether one is worse than that of a plain call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.stages.validate.judge import bounds

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.spec import Activation, Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam
    from mlpfusion.stages.validate.judge.excuses import Score


def score(exam: Exam, given: Tensors, name: str, dtype: Dtype, activation: Activation | None = None) -> Score:
    """What a tensor like y, d:gate or d:up scores by element."""
    activation = activation or exam.activation
    if name == "y":
        return lambda y: bounds.forward_scores(y, given["gate"], given["up"], activation, dtype)
    at = bounds.Point(given["gate"], given["up"], given["dy"])
    by = bounds.gate_scores if name == "d:gate" else bounds.up_scores
    return lambda grad: by(grad, at, activation, dtype)


def is_worse(exam: Exam, given: Tensors, name: str, *, found: Tensor, plain: Tensor, dtype: Dtype) -> bool:
    """Whether an element of an act·mul is beyond its bound where that of a plain call on the same operands is not.

    Another activation is as near to the right one as sums in another order are; by element it is not. A plain result
    with fewer bits than its dtype is within the bound by chance, and says nothing. A whole MLP has no bound by element.
    """
    if exam.kind == "mlp" or found.shape != plain.shape or found.dtype != plain.dtype:
        return False
    of = score(exam, given, name, dtype)
    beyond = of(found) > bounds.LIMIT
    if not bool(beyond.any()):
        return False
    within = of(plain) <= bounds.LIMIT
    return bool(within[plain.isfinite()].all()) and bool((beyond & within).any())
