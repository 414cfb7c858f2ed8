"""Checks that operands of any layout give the dense result, or are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks.check import BOTH, Check
from mlpfusion.stages.validate.judge.exam import Found, failed, grad_name, is_refusal, passed
from mlpfusion.stages.validate.judge.scores import is_worse, score
from mlpfusion.stages.validate.judge.worker_handle import RaisedError
from mlpfusion.stages.validate.layouts import DIMENSIONS, LAYOUTS, PACKED

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

LAID_OUT: Final = (8, 256)
ONE_ROW: Final = "one row of stride 1"
# Tied to another layer's, every second column, or a block of columns of a wider matrix, as a tensor-parallel share is.
WEIGHTS: Final = ("transposed", "sliced", "half of a packed tensor")
WEIGHTS_OF: Final = (("wg", "wu"), ("wg",), ("wu",), ("wd",))


class Case(NamedTuple):
    """Operands (or dy) that are handed over in one layout."""

    layout: str
    which: tuple[str, ...]

    @property
    def options(self) -> dict[str, Any]:
        """The options of a probe."""
        return {"packed": True} if self.layout == PACKED else {"layouts": dict.fromkeys(self.which, self.layout)}


def layouts(exam: Exam, dtype: Dtype) -> Found:
    """Operands of any layout give the dense result or are refused, in forward and backward."""
    refused, wrong = [], []
    dense: dict[str, Tensor] = {}  # by the operands' values, which few layouts change
    for case in _forward_cases(exam):
        given = _given(exam, dtype, case)
        values = _values(exam, given)
        named = f"{' and '.join(case.which)} {case.layout}"
        try:
            if values not in dense:
                dense[values] = exam.forward(given)
            results, facts = exam.ask("forward", given, **case.options)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            refused.append(named)
            continue
        if facts["beside"]:
            return failed(_beside(facts["beside"], case), _shape(exam, case.layout))
        if not _as_right(exam, given, "y", results["y"], dense[values], dtype=dtype):
            wrong.append((_shape(exam, case.layout), named))
    if wrong:
        names = "; ".join(named for _, named in wrong)
        return failed(f"silently wrong where operands are not dense: {names}", wrong[0][0])
    backward = _backward_layouts(exam, dtype)
    if backward is not None:
        return backward
    return passed("right in every layout" if not refused else f"right, or refused ({'; '.join(refused)})")


def _beside(names: list[str], case: Case) -> str:
    return f"writes into the memory beside {' and '.join(names)} where {' and '.join(case.which)} is {case.layout}"


def _forward_cases(exam: Exam) -> list[Case]:
    if exam.kind == "mlp":
        weights = [Case(layout, names) for layout in WEIGHTS for names in WEIGHTS_OF]
        return [*(Case(layout, ("x",)) for layout in LAYOUTS), *weights]
    sets = [exam.names]
    if exam.asked.quick:
        exam.left_out["each operand alone in another layout"] = None
    else:
        sets += [exam.names[:1], exam.names[1:]]
    return [*(Case(layout, which) for layout in LAYOUTS for which in sets), Case(PACKED, exam.names)]


def _given(exam: Exam, dtype: Dtype, case: Case) -> Tensors:
    """Dense operands that hold the values which they have in the layout."""
    given = exam.operands(dtype, _shape(exam, case.layout), "layouts")
    for name in case.which:
        if case.layout != PACKED:
            given[name] = LAYOUTS[case.layout](given[name]).clone(memory_format=torch.contiguous_format)
    if case.layout == ONE_ROW:
        given = {name: value[:1].clone() if value.shape[0] == LAID_OUT[0] else value for name, value in given.items()}
    return given


def _shape(exam: Exam, layout: str) -> tuple[int, ...]:
    whole = DIMENSIONS.get(layout, LAID_OUT)
    return whole if exam.kind == "act_mul" else whole[:-1]


def _backward_layouts(exam: Exam, dtype: Dtype) -> Found | None:
    """The same for gradients; the one that arrives may be of any layout too, and that of a sum is expanded."""
    dense: dict[str, Tensors | None] = {}
    for case in [*(Case(layout, ("dy",)) for layout in LAYOUTS), *_forward_cases(exam)]:
        given = _given(exam, dtype, case)
        values = _values(exam, given)
        if values not in dense:
            straight = exam.gradients(given)
            dense[values] = None if straight is None else straight[0]
        right = dense[values]
        laid = None if right is None else exam.gradients(given, **case.options)
        if right is None or laid is None:  # refused, or there are none
            continue
        if laid[1]["beside"]:
            return failed(_beside(laid[1]["beside"], case), _shape(exam, case.layout))
        for name, grad in right.items():
            if not _as_right(exam, given, name, laid[0][name], grad, dtype=dtype):
                what = "the output gradient" if case.which == ("dy",) else " and ".join(case.which)
                sentence = f"{grad_name(name)} is silently wrong where {what} is {case.layout}"
                return failed(sentence, _shape(exam, case.layout))
    return None


def _values(exam: Exam, given: Tensors) -> str:
    """Distinguishes operands by their values."""
    return repr([float(given[name].double().sum()) for name in (*exam.names, "dy")])


def _as_right(exam: Exam, given: Tensors, name: str, found: Tensor, dense: Tensor, *, dtype: Dtype) -> bool:
    """Whether a result is the dense one, or about as near to fp64.

    TF32 may be for one layout alone, and a CPU's vector code rounds otherwise than the code for strides: where that is
    in float16, they differ by an ulp of float16. Whether it should be is for the check of precision to say.
    """
    if is_worse(exam, given, name, found=found, plain=dense, dtype=dtype):
        return False
    if bounds.is_close(found, dense, dtype):
        return True
    if found.shape != dense.shape or found.dtype != dense.dtype:
        return False
    if bool((found.isfinite() != dense.isfinite()).any()):  # an infinite error allows no other
        return False
    if not bool(bounds.is_same(found, dense)[~dense.isfinite()].all()):
        return False
    # Of eight gates that are all negative every value is small, and the error of a sum that cancels is not.
    if exam.kind == "act_mul" and bool((score(exam, given, name, dtype)(found) <= bounds.LIMIT).all()):
        return True
    exact = exam.reference(given, grad=name != "y")[name]
    mine, theirs = ((each.double() - exact).abs()[dense.isfinite()] for each in (found, dense))
    return bool(mine.numel() == 0 or mine.max() <= 2 * theirs.max())


CHECKS: Final = (
    Check(
        "layouts",
        "operands and dy that are transposed, expanded, sliced, packed, offset or channels_last",
        BOTH,
        layouts,
        dtypes="each",
    ),
)
