"""The check of the memory beside operands: neither written nor read, in each dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.stages.validate.channel import PATTERNS
from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks.check import BOTH, Check
from mlpfusion.stages.validate.judge.exam import Found, failed, grad_name, is_refusal, passed, shape_text, undecided
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Facts
    from mlpfusion.stages.validate.judge.exam import Exam

# No multiple of a tile, rows of an odd length, and multiples of 8 alone, for vectors of 8.
SHAPES: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {
    "act_mul": ((257,), (7, 127), (8, 264)),
    "mlp": ((67,), (2, 96)),
}


def guards(exam: Exam, dtype: Dtype) -> Found:
    """Nothing beside an operand, dy or a result is written, and no result depends on what lies there."""
    refused = []
    grad = exam.lack(dtype) is None
    shapes = exam.asked.shapes or SHAPES[exam.kind]
    for shape in shapes:
        given = exam.operands(dtype, shape, "guards")
        try:
            asked = [exam.ask("guarded", given, pattern=pattern, grad=grad) for pattern in PATTERNS]
        except RaisedError as error:
            if not is_refusal(error):
                raise
            refused.append(shape_text(shape))
            continue
        outside = next((told for _, facts in asked if (told := _outside(facts))), None)
        if outside:
            return failed(f"writes outside {outside}", shape)
        first = asked[0][0]
        for name, other in ((name, results[name]) for results, _ in asked[1:] for name in first):
            differs = _differs(exam, first[name], other, dtype)
            if differs:
                what = f"{differs} of {other.numel()} elements of {grad_name(name)}"
                return failed(f"reads outside its operands: {what} depend on what lies beside them", shape)
    if len(refused) == len(shapes):
        return undecided(f"it refuses every shape tried: {', '.join(refused)}")
    return passed("nothing beside operands and results is written or read")


def _differs(exam: Exam, first: Tensor, other: Tensor, dtype: Dtype) -> int:
    """How many elements of two results are not the same; the sums of an MLP may come in another order."""
    same = bounds.is_same(first, other) if exam.kind == "act_mul" else bounds.close(first, other, dtype)
    return int((~same).sum())


def _outside(facts: Facts) -> str | None:
    """What was written where, in words; None where nothing was."""
    for name, (before, behind) in facts["outside"].items():
        return f"{name}: {_sides(before, behind)}"
    if facts["before"] or facts["behind"]:
        return f"memory that it allocates: {_sides(facts['before'], facts['behind'])}"
    return None


def _sides(before: int, behind: int) -> str:
    return " and ".join(
        f"{count} elements {side} it" for count, side in ((before, "before"), (behind, "behind")) if count
    )


CHECKS: Final = (
    Check("guards", "patterns on both sides of every operand, dy and allocation", BOTH, guards, dtypes="each"),
)
