"""Checks that what lies around operands and results in memory neither reaches a result nor changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks.check import BOTH, Check
from mlpfusion.stages.validate.judge.exam import Found, Sizes, failed, grad_name, is_refusal, passed, undecided
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

# Rows of an odd length, and multiples of 8, for vectors of 8.
SHAPES: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {"act_mul": ((7, 127), (8, 264)), "mlp": ((5,),)}
RAGGED: Final = Sizes(67, 131)  # of an MLP: tiles of its sums end within a row of x and of a weight
CLOSE: Final = 0.25  # of max(rms, |r|): what an MLP's sum took in from outside is off by more; its order may differ
LARGE: Final = ("large", "large")  # a number that no activation takes for 0, as one that drops nan would
SIDES: Final = {"before": ("nan", "zero"), "behind": ("zero", "nan")}


def guards(exam: Exam, dtype: Dtype) -> Found:
    """Results are the same whatever is around operands; that, and what is around its own tensors, is left as it is."""
    judged = 0
    for given in _operands(exam, dtype):
        shape = tuple(given["dy"].shape[:-1] if exam.kind == "mlp" else given["dy"].shape)
        for probe in ("forward", "backward"):
            around = dict.fromkeys((*exam.names, "dy"), ("nan", "nan"))
            poisoned = _call(exam, probe, given, around)
            plain = _call(exam, probe, given, dict.fromkeys(around, LARGE))
            if poisoned is None or plain is None:
                continue
            judged += 1
            beside = dict.fromkeys((*poisoned[1]["beside"], *plain[1]["beside"]))
            if beside:
                return failed(f"writes into the memory around {' and '.join(beside)}{_by(probe)}", shape)
            outside = _outside_its_own(exam, probe, given)
            if outside:
                return failed(f"writes outside a tensor that it has made{_by(probe)}: {outside}", shape)
            for name, value in poisoned[0].items():
                reached = _differs(exam, value, plain[0][name], dtype)
                if bool(reached.any()) and not _is_noise(exam, probe, given, around, name=name, first=value):
                    return failed(_said(exam, probe, given, name, reached), shape)
    return (
        passed("what is around operands and results is neither used nor changed")
        if judged
        else undecided("it refuses every shape tried")
    )


def _operands(exam: Exam, dtype: Dtype) -> Iterator[Tensors]:
    for shape in exam.asked.shapes or SHAPES[exam.kind]:
        yield exam.operands(dtype, shape, "guards")
        if exam.kind == "mlp":
            yield exam.operands(dtype, shape, "guards", sizes=RAGGED)


def _outside_its_own(exam: Exam, probe: str, given: Tensors) -> str | None:
    """What is written before or behind the copies, products and results of operators that a call makes, in words.

    Those of `torch.empty` and its kin are for the check "written", in each call. On a GPU compute-sanitizer sees such a
    write. A target may refuse to run so, as one that compiles itself does: that says nothing of it.
    """
    if exam.device != "cpu":
        return None
    refused = dict(exam.refused)
    try:
        call = _call(exam, probe, given, {}, operators=True)
    except RaisedError:
        call = None
    exam.refused.clear()
    exam.refused |= refused
    counts = {} if call is None else {side: call[1][side] for side in ("before", "behind") if call[1][side]}
    words = {"before": "before its start", "behind": "behind its end"}
    return " and ".join(f"{n} element{'s' * (n != 1)} {words[side]}" for side, n in counts.items()) or None


def _call(
    exam: Exam, probe: str, given: Tensors, around: dict[str, tuple[str, str]], *, operators: bool = False
) -> tuple[Tensors, Facts] | None:
    """Results with these patterns before and behind each operand, or None where there are none."""
    if probe == "backward":
        return exam.gradients(given, around=around, operators=operators)
    try:
        return exam.ask("forward", given, around=around, operators=operators)
    except RaisedError as error:
        if not is_refusal(error):
            raise
        return None


def _differs(exam: Exam, a: Tensor, b: Tensor, dtype: Dtype) -> Tensor:
    """Where two results of the same operands differ by more than the order of sums explains."""
    if exam.kind == "mlp":
        return (a.isfinite() != b.isfinite()) | ~(bounds.relative(a, b) <= CLOSE)
    return ~(bounds.is_same(a, b) | ((a.double() - b.double()).abs() <= 8 * bounds.EPS[dtype] * b.double().abs()))


def _is_noise(
    exam: Exam, probe: str, given: Tensors, around: dict[str, tuple[str, str]], *, name: str, first: Tensor
) -> bool:
    """Whether the same call, with the same memory around, gives another result again: that is for another check."""
    again = _call(exam, probe, given, around)
    return again is None or not bool(bounds.is_same(again[0][name], first).all())


def _said(exam: Exam, probe: str, given: Tensors, name: str, reached: Tensor) -> str:
    count, n = int(reached.sum()), reached.numel()
    first = int(reached.reshape(-1).nonzero()[0])
    where = _source(exam, probe, given, name)
    mask = "; is a mask `<=` where `<` belongs, or missing?" if where.startswith("behind") else ""
    return (
        f"reads {where} and uses it: {count} of {n} elements of {'the result' if name == 'y' else grad_name(name)} "
        f"depend{'s' * (count == 1)} on what is there, the first at index {first}{mask}"
    )


def _source(exam: Exam, probe: str, given: Tensors, name: str) -> str:
    """Which operand is read outside, and where: by nan on one side of one at a time, with zeros around the others."""
    names = (*exam.names, "dy") if probe == "backward" else exam.names
    for operand in names:
        for side, patterns in SIDES.items():
            call = _call(exam, probe, given, dict.fromkeys(names, ("zero", "zero")) | {operand: patterns})
            if call is not None and bool(call[0][name].isnan().any()):
                return f"{'before the start' if side == 'before' else 'behind the end'} of {operand}"
    return "outside its operands"


def _by(probe: str) -> str:
    return " when it trains" if probe == "backward" else ""


CHECKS: Final = (
    Check(
        "guards",
        "nan and numbers before and behind every operand, result and tensor of its own",
        BOTH,
        guards,
        dtypes="each",
    ),
)
