"""Checks values after many calls on the same operands, as a race makes: what is timed is what is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.checks.check import BOTH, Check
from mlpfusion.stages.validate.judge.exam import Found, failed, is_refusal, passed, undecided
from mlpfusion.stages.validate.judge.scores import score
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

TIMED: Final[dict[Kind, tuple[int, ...]]] = {"act_mul": (2, 256), "mlp": (2,)}
CALLS: Final = 500
CALLS_INTERPRETED: Final = 100  # an interpreter takes milliseconds for each
CALLS_S: Final = 30.0  # for a target that takes as long
WRONG: Final = 0.25  # of max(rms, |r|), for a whole MLP, whose exactness other checks judge


def after_timing(exam: Exam, dtype: Dtype) -> Found:
    """After hundreds of calls on the same operands, as a race makes, it is right, and on new values in their places."""
    shape = TIMED[exam.kind]
    given, later = (exam.operands(dtype, shape, purpose) for purpose in ("timed", "timed, later"))
    other = {each: later[each] for each in varied(exam)}
    is_interpreted = exam.loaded.interpreted and bool(exam.loaded.kernels or exam.launches)
    calls = CALLS_INTERPRETED if is_interpreted else CALLS
    both = given | {f"other:{each}": value for each, value in other.items()}
    try:
        results, facts = exam.ask("timed", both, calls=calls, seconds=min(CALLS_S, exam.asked.time_limit_s / 2))
    except RaisedError as error:
        if not is_refusal(error):
            raise
        return undecided(f"it refuses the shape tried: {error}")
    return judged(exam, given, other, results, calls=facts["calls"], shape=shape)


def varied(exam: Exam) -> tuple[str, ...]:
    """The operands that get new values: those that a model makes anew for each call."""
    return exam.names if exam.kind == "act_mul" else exam.names[:1]


def judged(
    exam: Exam, given: Tensors, other: Tensors, results: Tensors, *, calls: int, shape: tuple[int, ...]
) -> Found:
    """Whether the last timed result is right, and that on `other` at the same addresses after it.

    `results` has them as `timed` and `fresh`, for the operands in `given` and `other`; `shape` is what was timed.
    """
    for name, operands, what in (
        ("timed", given, "the last timed result"),
        ("fresh", given | other, "a result on new values"),
    ):
        y, right = results[name], exam.reference(operands)["y"]
        if y.shape != right.shape:
            return failed(f"after {calls} timed calls {what} has another shape", shape)
        if exam.kind == "act_mul":
            dtype: Any = str(y.dtype).removeprefix("torch.")
            off = excuses.scores(exam, score(exam, operands, "y", dtype), y, operands) > bounds.LIMIT
        else:
            off = ~(bounds.relative(y, right) <= WRONG)
        if bool(off.any()):
            where = f"{int(off.sum())} of {off.numel()} elements of {what} are wrong"
            return failed(f"after {calls} timed calls {where}", shape)
    return passed(f"right after {calls} timed calls, and on new values at the same addresses", calls=calls)


CHECKS: Final = (
    Check("after-timing", "hundreds of calls on the same operands, and one on new values there", BOTH, after_timing),
)
