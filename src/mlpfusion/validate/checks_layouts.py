"""The check that operands of any layout give the dense result, or are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from mlpfusion.validate import bounds
from mlpfusion.validate.checks import BOTH, Check
from mlpfusion.validate.exam import Found, failed, grad_name, is_refusal, passed
from mlpfusion.validate.hired import RaisedError
from mlpfusion.validate.layouts import LAYOUTS

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype
    from mlpfusion.validate.channel import Tensors
    from mlpfusion.validate.exam import Exam

LAID_OUT: Final = (24, 256)
PERMUTED: Final = (4, 6, 256)  # 24 rows without one distance between them


def layouts(exam: Exam, dtype: Dtype) -> Found:
    """Operands of any layout give the dense result or are refused, in forward and backward."""
    refused, wrong = [], []
    shape = _shape(exam, "dense")
    operands = exam.names if exam.kind == "act_mul" else ("x",)
    sets = [operands, operands[:1]] if exam.kind == "act_mul" else [operands]
    for layout, lay in LAYOUTS.items():
        for which in sets:
            given = exam.operands(dtype, _shape(exam, layout), "layouts")
            for name in which:
                given[name] = lay(given[name]).clone(memory_format=torch.contiguous_format)
            if layout == "one row of stride 1":
                given = {
                    name: value[:1].clone() if value.shape[0] == LAID_OUT[0] else value for name, value in given.items()
                }
            named = f"{' and '.join(which)} {layout}"
            try:
                dense = exam.forward(given)
                y = exam.forward(given, layouts=dict.fromkeys(which, layout))
            except RaisedError as error:
                if not is_refusal(error):
                    raise
                refused.append(named)
                continue
            if not _as_right(exam, given, "y", y, dense, dtype=dtype):
                wrong.append(named)
    if wrong:
        return failed(f"silently wrong where operands are not dense: {'; '.join(wrong)}", shape)
    backward = _backward_layouts(exam, dtype, shape)
    if backward is not None:
        return backward
    return passed("right in every layout" if not refused else f"right, or refused ({'; '.join(refused)})")


def _shape(exam: Exam, layout: str) -> tuple[int, ...]:
    whole = PERMUTED if layout == "permuted" else LAID_OUT
    return whole if exam.kind == "act_mul" else whole[:-1]


def _backward_layouts(exam: Exam, dtype: Dtype, shape: tuple[int, ...]) -> Found | None:
    """The same for gradients; the one that arrives may be of any layout too, and that of a sum is expanded."""
    operands = exam.names if exam.kind == "act_mul" else ("x",)
    cases: list[tuple[str, tuple[str, ...]]] = [("transposed", ("dy",)), ("expanded", ("dy",))]
    cases += [("transposed", operands[:1]), ("half of a packed tensor", operands), ("permuted", operands)]
    for layout, which in cases:
        given = exam.operands(dtype, _shape(exam, layout), "layouts")
        for name in which:
            given[name] = LAYOUTS[layout](given[name]).clone(memory_format=torch.contiguous_format)
        straight = exam.gradients(given)
        laid = None if straight is None else exam.gradients(given, layouts=dict.fromkeys(which, layout))
        if straight is None or laid is None:  # refused, or there are none
            continue
        for name, grad in straight[0].items():
            if not _as_right(exam, given, name, laid[0][name], grad, dtype=dtype):
                what = "the output gradient" if which == ("dy",) else " and ".join(which)
                return failed(f"{grad_name(name)} is silently wrong where {what} is {layout}", shape)
    return None


def _as_right(exam: Exam, given: Tensors, name: str, found: Tensor, dense: Tensor, *, dtype: Dtype) -> bool:
    """Whether a result is the dense one; an MLP's may be about as near to fp64: TF32 may be for one layout alone."""
    if bounds.is_close(found, dense, dtype):
        return True
    if exam.kind == "act_mul" or found.shape != dense.shape or found.dtype != dense.dtype:
        return False
    exact = exam.reference(given, grad=name != "y")[name]
    return bool((found.double() - exact).abs().max() <= 2 * (dense.double() - exact).abs().max())


CHECKS: Final = (
    Check("layouts", "transposed, expanded, sliced, packed and offset operands", BOTH, layouts, dtypes="two"),
)
