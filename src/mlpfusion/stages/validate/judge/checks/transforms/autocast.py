"""The check of calls under autocast: equal and mixed operands, one row and many, trained and not."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from mlpfusion.stages.validate.judge import excuses
from mlpfusion.stages.validate.judge.checks.check import BOTH, Check
from mlpfusion.stages.validate.judge.checks.transforms.alone import another_alone
from mlpfusion.stages.validate.judge.checks.transforms.differences import IS_INFERENCE, differs, short
from mlpfusion.stages.validate.judge.exam import Found, failed, hazard, is_refusal, passed, shape_text
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

# Beside `plain`, of gate or of the rows of x: one row, as decoding has, and many in more dimensions.
SHAPES: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {
    "act_mul": ((1, 256), (2, 3, 97)),
    "mlp": ((1,), (1, 1), (3, 67)),
}
# The calls whose results the worker gives, in words.
CALLS: Final = {"y": "", "p:y": " without gradients", "i:y": " in inference mode"}


class Case(NamedTuple):
    """A call: its shape, the dtype of each operand, the one that autocast computes in, and whether it trains."""

    shape: tuple[int, ...]
    dtypes: tuple[Dtype, ...]
    to: Dtype
    grad: bool

    @property
    def options(self) -> dict[str, Any]:
        """What the worker is told of it."""
        return {"dtypes": list(self.dtypes), "to": self.to, "grad": self.grad}

    @property
    def named(self) -> str:
        """Its operands in words."""
        return "/".join(self.dtypes[:2])


def autocast(exam: Exam, dtype: Dtype) -> Found:
    """Under autocast to a 16-bit dtype: right values and gradients in eager's dtypes, for equal and mixed operands."""
    to: Dtype = "bfloat16" if dtype == "float32" else dtype
    refused, hazards = [], []
    other: dict[tuple[str, ...], str] = {}  # what has another dtype than eager's: where that is seen first
    for case in _cases(exam, to):
        given = exam.operands("float32", case.shape, "autocast")
        is_plain = case.shape == exam.plain
        try:
            results, facts = exam.ask("autocast", given, **case.options)
        except RaisedError as raised:
            if not is_refusal(raised):
                raise
            if is_plain:
                refused.append(case.named)
            continue
        eager, _ = exam.ask_peer("eager", "autocast", given, **case.options)
        wrong = _overwritten(facts) or _wrong(exam, case, given, results, eager)
        if wrong:
            return failed(f"under autocast to {to}, operands {case.named}: {wrong}", case.shape)
        if facts["inference"]:
            hazards.append(f"under autocast to {to} and no_grad {IS_INFERENCE}")
        for name, value in eager.items():
            mine = results.get(name)
            if mine is not None and mine.dtype != value.dtype:
                call = CALLS.get(name, "") + ("" if is_plain else f" for {shape_text(case.shape)}")
                kinds = f"in {short(mine.dtype)}, eager in {short(value.dtype)}"
                other.setdefault((case.named, "y" if name in CALLS else name, kinds), call)
    if "float32/float32" in refused:
        return hazard(f"breaks under autocast: refuses {', '.join(refused)}", exam.plain)
    if other:
        said = "; ".join(f"{named} gives {name} {kinds}{call}" for (named, name, kinds), call in other.items())
        return hazard(f"another dtype than eager's under autocast: {said}", exam.plain)
    if hazards:
        return hazard(hazards[0], exam.plain)
    refusals = f"; refuses {', '.join(refused)}" if refused else ""
    return _alone(exam, to) or passed(f"right under autocast, in eager's dtypes{refusals}")


def _cases(exam: Exam, to: Dtype) -> Iterator[Case]:
    """Every set of dtypes for the plain shape; for others operands of one dtype, or x of another than the weights."""
    grad = exam.forward_only is None
    if exam.kind == "mlp":
        wide: tuple[Dtype, ...] = ("float32",) * 4
        sets: list[tuple[Dtype, ...]] = [wide, (to, *wide[1:])]
        equal = sets
    else:
        sets = list(itertools.product(("float32", to), repeat=2))
        equal = [sets[0], sets[-1]]
    yield from (Case(exam.plain, each, to, grad) for each in sets)
    for shape in () if exam.asked.shapes else SHAPES[exam.kind]:
        yield from (Case(shape, each, to, grad) for each in equal)


def _wrong(exam: Exam, case: Case, given: Tensors, results: Tensors, eager: Tensors) -> str | None:
    """What is wrong with the values of a call and with its gradients, in words, or None."""
    cast = {name: given[name].to(getattr(torch, kind)) for name, kind in zip(exam.names, case.dtypes, strict=True)}
    right = exam.reference(cast | {"dy": given["dy"].to(results["y"].dtype)}, grad=case.grad)
    trains = case.grad and all(exam.lack(each) is None for each in set(case.dtypes) & set(exam.dtypes))
    # Of one row the gradients of weights are no sums, in which errors are small beside the result.
    is_judged = trains and case.shape == exam.plain
    for call, said in CALLS.items():
        expected = right if is_judged and call == "y" else {"y": right["y"]}
        found = {name: results[name] for name in expected if name in results} | {"y": results[call]}
        theirs = eager | {"y": eager[call]}
        # What was computed in bfloat16 is judged as such; that eager's dtype differs is reported.
        by: Dtype = "bfloat16" if results[call].dtype is torch.bfloat16 else case.to

        def errors(
            name: str, value: Tensor, eager: Tensors = theirs, expected: Tensors = expected, by: Dtype = by
        ) -> tuple[Tensor, Tensor]:
            return excuses.beside_eager(exam, value, eager[name], expected[name], given, of=name, dtype=by)

        wrong = differs(expected, found, by, errors)
        if wrong:
            return wrong + said
    return None


def _overwritten(facts: Facts) -> str | None:
    """Which operands a call overwrites, in words, or None."""
    for call, names in facts["changed"].items():
        if names:
            return f"the forward overwrites {' and '.join(names)}{CALLS[call]}"
    return None


def _alone(exam: Exam, to: Dtype) -> Found | None:
    """What is wrong with the gradient of one operand where no other needs one, if something is."""
    if exam.lack(exam.finest) is not None:
        return None
    given = exam.operands(exam.finest, exam.plain, "autocast")
    options = {"dtypes": [exam.finest] * len(exam.names), "to": to, "grad": True}
    try:
        whole, _ = exam.ask("autocast", given, **options)
    except RaisedError as raised:
        if not is_refusal(raised):
            raise
        return None
    return another_alone(exam, given, whole, to, f"under autocast to {to}", within="autocast", to=to)


CHECKS: Final = (
    Check(
        "autocast",
        "equal and mixed operands under autocast, and operands of which one trains",
        BOTH,
        autocast,
        dtypes="narrow",
    ),
)
