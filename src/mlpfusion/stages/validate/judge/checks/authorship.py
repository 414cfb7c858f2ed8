"""Checks of who computes a result, and when: its own kernels, in its own call, from the operands of that call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks.check import BOTH, Check
from mlpfusion.stages.validate.judge.exam import (
    Found,
    failed,
    grad_name,
    hazard,
    is_refusal,
    passed,
    reported,
    shape_text,
    undecided,
)
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

LATE: Final[dict[Kind, tuple[int, ...]]] = {"act_mul": (64, 8192), "mlp": (2113,)}
LATE_INTERPRETED: Final[dict[Kind, tuple[int, ...]]] = {"act_mul": (16, 4096), "mlp": (128,)}  # an eighth of a second
MANY: Final[dict[Kind, tuple[int, ...]]] = {"act_mul": (2, 256), "mlp": (2,)}
CALLS: Final = 2500
CALLS_INTERPRETED: Final = 300  # an interpreter takes milliseconds for each
CALLS_S: Final = 60.0  # for a target that takes as long
SETS: Final = 4
# Shapes that are ablated beside `plain`: a decoy may be launched in one kind of call alone.
ABLATED: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {
    "act_mul": ((7, 127), (1031,), (1, 4864), (2, 4, 256), (1, 65537)),
    "mlp": ((1,), (67,)),
}
# More of a result than this, equal to the bit without its kernels, was not made by them.
MOST_EQUAL: Final = 0.5
NOT_ITS_OWN: Final = "no kernel of its own was launched"


def own_kernel(exam: Exam, dtype: Dtype) -> Found:
    """Its own kernels make the result: without their launches, and with those of another call, it is another."""
    results, facts = _ablated(exam, dtype, exam.plain)
    if facts["replays"]:  # its launches are those of the capture, and the graph keeps its result where others find it
        return reported("a CUDA graph makes the result: whose kernels are in it is not known here")
    if not facts["launched"]:
        backward = exam.gradients(exam.operands(dtype, exam.plain, "ablated")) if exam.lack(dtype) is None else None
        return _without_launches(exam, facts, backward[1]["launches"] if backward else 0)
    decoy = _decoy(exam.plain, results, facts)
    if decoy is not None:
        return decoy
    launched = exam.launched.items()
    elsewhere = [shape_text(shape) for (kind, shape), count in launched if kind == dtype and not count and all(shape)]
    trained = [(exam.plain, True)] if exam.lack(dtype) is None else []
    for shape, grad in (*((each, False) for each in exam.some(ABLATED[exam.kind])), *trained):
        try:
            others, there = _ablated(exam, dtype, shape, grad=grad)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            continue
        if there["replays"]:  # a graph that this call has captured keeps its result where the next ones find it
            continue
        if there["launched"]:
            decoy = _decoy(shape, others, there, " with gradients on" * grad)
            if decoy is not None:
                return decoy
        elif grad:
            elsewhere.append("calls that need gradients")
    if elsewhere:
        shapes = ", ".join(dict.fromkeys(elsewhere))
        return reported(f"its own kernels make the result, but for {shapes}: {NOT_ITS_OWN} there")
    if "raised" in facts and "exchanged" not in results:
        return reported(
            f"{_launches(facts)} of Triton kernels, without which it raises {facts['raised']}: their part in the "
            "result is not known here"
        )
    return passed(f"its own kernels make the result, by {_launches(facts)} of Triton's")


def _ablated(exam: Exam, dtype: Dtype, shape: tuple[int, ...], *, grad: bool = False) -> tuple[Tensors, Facts]:
    given, other = (exam.operands(dtype, shape, purpose) for purpose in ("ablated", "ablated again"))
    return exam.ask("ablated", given | {f"other:{name}": other[name] for name in exam.names}, grad=grad)


def _launches(facts: Facts) -> str:
    count = facts["launched"]
    return f"{count} launch{'es' * (count != 1)}"


def _decoy(shape: tuple[int, ...], results: Tensors, facts: Facts, where: str = "") -> Found | None:
    """That the launches of a call have no part in its result, or None."""
    y = results["y"]
    said = y != 0
    for name, each in results.items():
        if name == "y" or each.shape != y.shape:
            continue
        equal = float((bounds.is_same(y, each) & said).sum()) / max(1, int(said.sum()))
        if equal > MOST_EQUAL:
            part = f"the {_launches(facts)} of Triton kernels have no part in it"
            if name == "exchanged":
                part = (
                    f"of the {_launches(facts)} of Triton kernels it has copies, or what is the same for other operands"
                )
            return hazard(f"{NOT_ITS_OWN} for {equal:.0%} of the result{where}: PyTorch computed this; {part}", shape)
    return None


def _without_launches(exam: Exam, facts: Facts, in_backward: int) -> Found:
    operators = facts["operators"]
    if in_backward:
        return reported(f"its own kernels make the gradients; PyTorch computes the result ({', '.join(operators)})")
    kernels = max(exam.loaded.kernels, facts["tried"])
    if not operators and not kernels:
        return reported(
            "no launch of Triton's and no operator of PyTorch's was seen: who computes it is not known here"
        )
    by = f"PyTorch computed this ({', '.join(operators)})" if operators else "something else computed this"
    why = "; the launch that it tries raises" if facts["tried"] else "; its Triton kernels did not run" * bool(kernels)
    return reported(f"{NOT_ITS_OWN}: {by}{why}", kernels=kernels)


def late(exam: Exam, dtype: Dtype) -> Found:
    """A result is complete when its call returns: no thread and no other stream writes it later."""
    shape = (LATE_INTERPRETED if _is_interpreted(exam) else LATE)[exam.kind]
    given = exam.operands(dtype, shape, "late")
    try:
        results, facts = exam.ask("late", given, grad=exam.lack(dtype) is None)
    except RaisedError as error:
        if not is_refusal(error):
            raise
        return undecided(f"it refuses the shape tried: {error}")
    for name in ("y", *(f"d:{each}" for each in exam.names)):
        if f"first {name}" not in results:
            continue
        first, last = results[f"first {name}"], results[f"last {name}"]
        differs = ~bounds.is_same(first, last)
        if bool(differs.any()):
            count, n = int(differs.sum()), differs.numel()
            what = "its result" if name == "y" else grad_name(name)
            return failed(
                f"{count} of {n} elements of {what} are written after the call has returned: by a thread or on a "
                "stream that nobody waits for",
                shape,
            )
    if facts["threads"]:
        return hazard(f"a call leaves threads at work: {', '.join(facts['threads'])}")
    return passed("results are complete when a call returns")


def _is_interpreted(exam: Exam) -> bool:
    return exam.loaded.interpreted and bool(exam.loaded.kernels or exam.launches)


def many_calls(exam: Exam, dtype: Dtype) -> Found:
    """Every call computes: new values at old addresses, old ones at new addresses, and after thousands of calls."""
    shape = MANY[exam.kind]
    sets = [exam.operands(dtype, shape, f"many {index}") for index in range(SETS)]
    if exam.kind == "mlp":
        sets = [sets[0] | {"x": each["x"]} for each in sets]
    given = sets[0] | {f"{index}:{name}": each[name] for index, each in enumerate(sets) for name in exam.names}
    calls = CALLS_INTERPRETED if _is_interpreted(exam) else CALLS
    try:
        results, facts = exam.ask("many", given, sets=SETS, calls=calls, seconds=CALLS_S, seed=exam.seed)
    except RaisedError as error:
        if not is_refusal(error):
            raise
        return undecided(f"it refuses the shape tried: {error}")
    if "at" not in facts:
        return passed(f"each of {facts['done']} calls computes from its own operands", calls=facts["done"])
    y, index = results["y"], facts["index"]
    where = "in new memory" if facts["moved"] else "at the addresses of earlier ones"
    other = next(
        (each for each in range(SETS) if each != index and bool(bounds.is_same(results[f"y:{each}"], y).all())), None
    )
    if other is not None:
        return failed(
            f"call {facts['at']} gives the result of other operands again: its own are {where}; a result is kept "
            "where it should be computed",
            shape,
        )
    return failed(f"call {facts['at']} gives another result than an earlier call on the same values, {where}", shape)


CHECKS: Final = (
    Check("late", "a result as its call returns, and some time later", BOTH, late, dtypes="each"),
    Check("many-calls", "2500 calls that alternate between values and addresses", BOTH, many_calls),
    Check(
        "own-kernel",
        "calls whose launches of Triton kernels do nothing, or write what those of another call wrote",
        BOTH,
        own_kernel,
        dtypes="each",
    ),
)
