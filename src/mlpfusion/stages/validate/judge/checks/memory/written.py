"""Checks that every element of a result is written, and nothing around it, by memory that is poisoned before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor

from mlpfusion.stages.validate.channel import PATTERNS
from mlpfusion.stages.validate.judge.exam import Found, failed, grad_name, is_refusal, passed, shape_text, undecided
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

# No multiple of any tile, a multiple of most, rows of an odd length, and multiples of 8 alone, for vectors of 8.
WRITTEN: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {
    "act_mul": ((257,), (1031,), (7, 127), (2, 2048), (1032,), (8, 264)),
    "mlp": ((257,), (1031,), (2, 96)),
}


def like(exam: Exam, given: Tensors) -> Tensor:
    """An operand of the shape and dtype that the result should have."""
    return given["dy"] if exam.kind == "mlp" else given["gate"]


def misshapen(y: Tensor, like: Tensor, dtype: Dtype) -> Found | None:
    """That a result has another shape or dtype than it should, if it has."""
    if y.shape != like.shape:
        return failed(f"returns shape {tuple(y.shape)} for {tuple(like.shape)}", tuple(like.shape))
    if y.dtype != like.dtype:
        return failed(f"returns {str(y.dtype).removeprefix('torch.')} for {dtype} operands", tuple(like.shape))
    return None


def written(exam: Exam, dtype: Dtype) -> Found:
    """Every element of result and gradients is written, and nothing around: memory is poisoned with two patterns."""
    refused, faults = [], []
    shapes = exam.asked.shapes or exam.some(WRITTEN[exam.kind])
    for shape in shapes:
        given = exam.operands(dtype, shape, "written")
        try:
            first, facts = exam.ask("forward", given, pattern="nan")
            second, again = exam.ask("forward", given, pattern="odd")
        except RaisedError as error:
            if not is_refusal(error):
                raise
            refused.append(shape_text(shape))
            continue
        wrong = misshapen(first["y"], like(exam, given), dtype)
        if wrong is not None:
            return wrong
        faults += _left((shape, ""), "y", (first, second), (facts, again))
        for where, zeros in _each_zero(exam, given):
            (first, facts), (second, again) = (exam.ask("forward", zeros, pattern=each) for each in ("nan", "odd"))
            faults += _left((shape, where), "y", (first, second), (facts, again))
    if not faults and len(refused) < len(shapes):
        faults = _left_by_backward(exam, dtype, shapes)
    if faults:
        # Where a part is written the fault has a face; where nothing is, it has not.
        told = next((each for each in faults if 0 < int(each.left.sum()) < each.left.numel()), faults[0])
        return failed(_unwritten(told), told.shape)
    if len(refused) == len(shapes):
        return undecided(f"it refuses every shape tried: {', '.join(refused)}")
    return passed("every element is written and nothing around the result, under both patterns")


class Left(NamedTuple):
    """What a call left unwritten of one result, as a mask [N], and what it wrote before and behind an allocation."""

    shape: tuple[int, ...]
    where: str  # what is special about the operands, in words
    name: str
    left: Tensor
    before: int
    behind: int
    farthest: int


def _each_zero(exam: Exam, given: Tensors, *, grad: bool = False) -> Iterator[tuple[str, Tensors]]:
    """The operands (and dy) with one of them 0 everywhere, for which a kernel may leave out its work and its store."""
    if exam.asked.quick:
        exam.left_out["operands that are 0 everywhere"] = None
        return
    for name in (*exam.names[:2], *(("dy",) if grad else ())):
        yield f" where {name} is 0", given | {name: torch.zeros_like(given[name])}


def _left(
    case: tuple[tuple[int, ...], str], name: str, both: tuple[Tensors, Tensors], facts: tuple[Facts, Facts]
) -> list[Left]:
    first, second = both
    odd = torch.tensor(PATTERNS["odd"]).to(first[name].dtype)
    left = (first[name].isnan() & (second[name] == odd)).reshape(-1)
    # What is written behind may be a nan that was read there: one of the two patterns shows it.
    before, behind, farthest = (max(fact[key] for fact in facts) for key in ("before", "behind", "farthest"))
    is_wrong = bool(left.any()) or before or behind
    return [Left(*case, name, left, before, behind, farthest)] if is_wrong else []


def _left_by_backward(exam: Exam, dtype: Dtype, shapes: tuple[tuple[int, ...], ...]) -> list[Left]:
    faults = []
    for shape in shapes:
        plain = exam.operands(dtype, shape, "written")
        for where, given in (("", plain), *_each_zero(exam, plain, grad=True)):
            once, twice = exam.gradients(given, pattern="nan"), exam.gradients(given, pattern="odd")
            if once is None or twice is None:
                break
            (first, facts), (second, again) = once, twice
            for name in exam.names:
                faults += _left((shape, where), f"d:{name}", (first, second), (facts, again))
    return faults


def _unwritten(fault: Left) -> str:
    left, behind, farthest = fault.left, fault.behind, fault.farthest
    n, count = left.numel(), int(left.sum())
    result = "the result" if fault.name == "y" else grad_name(fault.name)
    outside = f"{behind} element{'s' * (behind != 1)} behind its end are" if behind != 1 else "1 element behind it is"
    if behind and count == n:
        return (
            f"the mask is inverted (`>` where `<` belongs?): none of the {n} elements of {result} is written, "
            f"and {outside}"
        )
    if fault.before:
        some = f"{fault.before} element{'s' * (fault.before != 1)} before its start"
        return (
            f"writes outside {'its result' if fault.name == 'y' else result}: {some} {_are(fault.before)} written"
            + (f", and {outside}" if behind else "")
            + (f"; {count} of {n} are not" if count else "")
        )
    if behind:
        reach = f", up to {farthest} beyond it" if farthest > 1 else ""
        return (
            f"writes outside {'its result' if fault.name == 'y' else result}: {outside} written{reach}"
            + (f"; {count} of {n} are not" if count else "")
            + "; is the mask `<=` where `<` belongs, or missing?"
        )
    first = int(left.nonzero()[0])
    if count == n:
        return f"none of the {n} elements of {result} is written{fault.where}"
    if first == n - count:
        if count == 1:
            return f"the last of {n} elements of {result} is never written{fault.where}: an index is off by one"
        tail = "the tail behind the last whole tile is left out"
        return f"the last {count} of {n} elements of {result} are never written{fault.where}: {tail}"
    return f"{count} of {n} elements of {result} are never written{fault.where}, the first at index {first}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
