"""Whether results are those that are right, or that another call gives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.exam import grad_name
from mlpfusion.stages.validate.judge.scores import is_worse

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

    Errors = Callable[[str, Tensor], tuple[Tensor, Tensor]]

NOTHING: Final = "0 everywhere"
IS_INFERENCE: Final = (
    "its result is an inference tensor, though the call is not in inference mode: it cannot be saved for a backward, "
    "or changed in place"
)


def differs(right: Tensors, results: Tensors, dtype: Dtype, errors: Errors | None = None) -> str | None:
    """Which result is missing, or further from what is right than 1%, 8 eps and twice eager's, in words, or None.

    `errors` gives those of a result and of eager's by its name; without it there is no eager.
    """
    for name, exact in right.items():
        value = results.get(name)
        if value is None:
            return f"there is no gradient for {name[2:]}"
        if value.shape != exact.shape:
            return f"{grad_name(name)} has shape {tuple(value.shape)}"
        mine, theirs = errors(name, value) if errors else (bounds.relative(value, exact), None)
        largest = _largest(mine)
        if largest > max(1e-2, 8 * bounds.EPS[dtype], 0.0 if theirs is None else 2 * _largest(theirs)):
            what = NOTHING if not value.any() else f"off by {largest:.2g}" if largest < math.inf else "not finite"
            return f"{grad_name(name)} is {what}"
    return None


def worse_than_plain(exam: Exam, given: Tensors, plain: Tensors, found: Tensors, dtype: Dtype) -> str | None:
    """Which result is apart from a plain call's and from what is right, or alone beyond its bound, or None."""
    return _apart(exam, given, plain, found, dtype) or _worse(exam, given, plain, found, dtype)


def _apart(exam: Exam, given: Tensors, plain: Tensors, found: Tensors, dtype: Dtype) -> str | None:
    """Which result is apart from a plain call's and from what is right, in words, or None.

    A plain call that rounds each step to 16 bits may itself be off by more than a compiled one may differ: 6% in the
    gradient of a quick GELU in one of a hundred seeds.
    """
    wrong = differs(plain, found, dtype)
    if wrong is None or any(name not in found or found[name].shape != value.shape for name, value in plain.items()):
        return wrong
    right = exam.reference(given, grad=len(plain) > 1)

    def errors(name: str, value: Tensor) -> tuple[Tensor, Tensor]:
        theirs = bounds.relative(plain[name], right[name])
        return bounds.relative(value, right[name]), theirs[theirs <= excuses.BROKEN * bounds.EPS[dtype]]

    return wrong if differs({name: right[name] for name in plain}, found, dtype, errors) else None


def _worse(exam: Exam, given: Tensors, plain: Tensors, found: Tensors, dtype: Dtype) -> str | None:
    """Which result is beyond its bound where that of a plain call is not, in words, or None."""
    worse = (
        name
        for name, value in plain.items()
        if is_worse(exam, given, name, found=found[name], plain=value, dtype=dtype)
    )
    return next((f"{grad_name(name)} is beyond the bound that a plain call keeps" for name in worse), None)


def _largest(errors: Tensor) -> float:
    return float(errors.max()) if errors.numel() else 0.0


def short(dtype: torch.dtype) -> str:
    """A dtype in words, as bfloat16."""
    return str(dtype).removeprefix("torch.")
