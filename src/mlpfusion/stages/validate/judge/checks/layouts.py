"""Checks that operands of any layout give the dense result, or are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks.check import BOTH, Check
from mlpfusion.stages.validate.judge.checks.values import MOST_BIAS_ULP
from mlpfusion.stages.validate.judge.exam import Found, failed, grad_name, is_refusal, passed
from mlpfusion.stages.validate.judge.scores import is_worse, score
from mlpfusion.stages.validate.judge.worker_handle import RaisedError
from mlpfusion.stages.validate.layouts import BUFFERS, DIMENSIONS, LAYOUTS, PACKINGS

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

LAID_OUT: Final = (8, 256)
DISTINCT: Final = 100  # results that differ by an ulp here and there have a mean within 0.1 then
ONE_ROW: Final = "one row of stride 1"
# Tied to another layer's, every second column, or a block of columns of a wider matrix, as a tensor-parallel share is.
WEIGHTS: Final = ("transposed", "sliced", "half of a packed tensor")
WEIGHTS_OF: Final = (("wg", "wu"), ("wg",), ("wu",), ("wd",))
# Layouts of one shape that operands have beside each other: a kernel may read one by the strides of another.
MIXED: Final = (
    (
        *("half of a packed tensor", "part of a wider tensor", "with overlapping rows", "expanded", "sliced"),
        *("transposed", "expanded along its last dimension", "offset"),
    ),
    (
        *("half of a packed tensor in three dimensions", "cut along its second dimension", "permuted"),
        *("expanded along the first of three dimensions", "expanded along the second of three dimensions"),
    ),
)
NEVER_ALONE: Final = (
    *("part of a wider tensor", "expanded along the first of three dimensions"),
    "expanded along the second of three dimensions",
)
MIXED_WEIGHTS: Final = ("half of a packed tensor", "part of a wider tensor", "transposed", "sliced")


class Case(NamedTuple):
    """The layout of each operand (and dy) that is not dense, or how all operands lie `together` in one memory."""

    laid: dict[str, str]
    together: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """The options of a probe."""
        if self.together:
            return {"packed": self.together} if self.together in PACKINGS else {"buffer": self.together}
        return {"layouts": self.laid}

    @property
    def said(self) -> str:
        """The layouts in words, as "gate and up transposed"."""
        return " and ".join(f"{names} {layout}" for layout, names in self._names().items())

    @property
    def where(self) -> str:
        """The same as a clause, as "gate and up is transposed"."""
        return " and ".join(f"{names} is {layout}" for layout, names in self._names().items())

    def _names(self) -> dict[str, str]:
        named: dict[str, list[str]] = {}
        for name, layout in self.laid.items():
            named.setdefault(layout, []).append("the output gradient" if name == "dy" else name)
        return {layout: " and ".join(names) for layout, names in named.items()}


def layouts(exam: Exam, dtype: Dtype) -> Found:
    """Operands of any layout give the dense result or are refused, in forward and backward."""
    refused, wrong = [], []
    dense: dict[str, Tensor] = {}  # by the operands' values, which few layouts change
    for case in _forward_cases(exam):
        given = _given(exam, dtype, case)
        values = _values(exam, given)
        try:
            if values not in dense:
                dense[values] = exam.forward(given)
            results, facts = exam.ask("forward", given, **case.options)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            refused.append(case.said)
            continue
        if facts["beside"]:
            return failed(_beside(facts["beside"], case), _shape(exam, case))
        if not _as_right(exam, given, "y", results["y"], dense[values], dtype=dtype):
            wrong.append((_shape(exam, case), case.said))
        elif (off := shift_in_ulp(results["y"], dense[values], dtype)) is not None:
            return failed(f"rounds to one side where {case.where}: results are {off:+.2f} ulp off", _shape(exam, case))
    if wrong:
        names = "; ".join(named for _, named in wrong)
        return failed(f"silently wrong where operands are not dense: {names}", wrong[0][0])
    backward = _backward_layouts(exam, dtype)
    if backward is not None:
        return backward
    return passed("right in every layout" if not refused else f"right, or refused ({'; '.join(refused)})")


def _beside(names: list[str], case: Case) -> str:
    return f"writes into the memory beside {' and '.join(names)} where {case.where}"


def _forward_cases(exam: Exam) -> list[Case]:
    if exam.kind == "mlp":
        weights = [Case(dict.fromkeys(names, layout)) for layout in WEIGHTS for names in WEIGHTS_OF]
        pairs = [Case({"wg": gate, "wu": up}) for gate, up in _following(MIXED_WEIGHTS, 2)]
        buffers = [_together(exam.names[1:], buffer) for buffer in BUFFERS]
        return [*(Case({"x": layout}) for layout in LAYOUTS), *weights, *buffers, *pairs]
    sets = [exam.names]
    mixed: list[Case] = []
    if exam.asked.quick:
        exam.left_out["each operand alone in another layout"] = None
    else:
        sets += [exam.names[:1], exam.names[1:]]
        mixed = [Case({"gate": gate, "up": up}) for group in MIXED for gate, up in _following(group, 2)]
    laid = [Case(dict.fromkeys(which, layout)) for layout in LAYOUTS for which in sets if _is_judged(which, layout)]
    return [*laid, *mixed, *(_together(exam.names, each) for each in (*PACKINGS, *BUFFERS))]


def _is_judged(which: tuple[str, ...], layout: str) -> bool:
    """Whether operands have a layout while the others are dense; where they need not, these have others (`MIXED`)."""
    return len(which) > 1 or layout not in NEVER_ALONE


def _backward_cases(exam: Exam) -> list[Case]:
    """Those of the forward with a dense dy, dy alone in each layout, and all of one layout or each of another."""
    alone = [Case({"dy": layout}) for layout in LAYOUTS]
    first = exam.names if exam.kind == "act_mul" else exam.names[:1]  # operands that have rows
    alike = [Case(dict.fromkeys((*first, "dy"), layout)) for layout in LAYOUTS if layout != ONE_ROW]
    dense = [case for case in _forward_cases(exam) if len({*case.laid.values()}) == 1]
    if exam.asked.quick:
        exam.left_out["operands in a layout, and dy in none"] = None
        return [*alone, *alike, *(case for case in dense if case.together or first[0] not in case.laid)]
    mixed: list[Case] = []
    if exam.kind == "act_mul":
        names = (*exam.names, "dy")
        mixed = [Case(dict(zip(names, each, strict=True))) for group in MIXED for each in _following(group, 3)]
    return [*alone, *dense, *alike, *mixed]


def _following(group: tuple[str, ...], count: int) -> list[tuple[str, ...]]:
    """So many layouts one after the other, beginning with each of a group."""
    twice = group * 2
    return [twice[start : start + count] for start in range(len(group))]


def _together(names: tuple[str, ...], how: str) -> Case:
    return Case(dict.fromkeys(names, how), how)


def _given(exam: Exam, dtype: Dtype, case: Case) -> Tensors:
    """Dense operands that hold the values which they have in the layout."""
    given = exam.operands(dtype, _shape(exam, case), "layouts")
    for name, layout in case.laid.items():
        if not case.together:
            given[name] = LAYOUTS[layout](given[name]).clone(memory_format=torch.contiguous_format)
    if ONE_ROW in case.laid.values():
        given = {name: value[:1].clone() if value.shape[0] == LAID_OUT[0] else value for name, value in given.items()}
    return given


def _shape(exam: Exam, case: Case) -> tuple[int, ...]:
    whole = DIMENSIONS.get(next(iter(case.laid.values())), LAID_OUT)
    return whole if exam.kind == "act_mul" else whole[:-1]


def _backward_layouts(exam: Exam, dtype: Dtype) -> Found | None:
    """The same for gradients; the one that arrives may be of any layout too, and that of a sum is expanded."""
    dense: dict[str, Tensors | None] = {}
    for case in _backward_cases(exam):
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
            return failed(_beside(laid[1]["beside"], case), _shape(exam, case))
        for name, grad in right.items():
            if not _as_right(exam, given, name, laid[0][name], grad, dtype=dtype):
                return failed(f"{grad_name(name)} is silently wrong where {case.where}", _shape(exam, case))
            if (off := shift_in_ulp(laid[0][name], grad, dtype)) is not None:
                said = f"{grad_name(name)} is rounded to one side where {case.where}: it is {off:+.2f} ulp off"
                return failed(said, _shape(exam, case))
    return None


def shift_in_ulp(found: Tensor, dense: Tensor, dtype: Dtype) -> float | None:
    """By how many ulp a result is larger on average than the dense one, away from 0; None where that is no bias.

    Another way to round is off to both sides alike, and a store that truncates by half an ulp to 0. Of few distinct
    values the mean says nothing.
    """
    if dtype == "float32" or found.shape != dense.shape:
        return None
    mine, theirs = found.double().abs(), dense.double().abs()
    off = (mine - theirs) / bounds.ulp(theirs, dtype)
    kept = mine.isfinite() & bounds.is_inside(theirs, dtype) & (off.abs() <= 2)  # what is further off no store has done
    if len(set(theirs[kept].tolist())) < DISTINCT:
        return None
    mean = float(off[kept].mean())
    return None if abs(mean) <= MOST_BIAS_ULP else mean


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
