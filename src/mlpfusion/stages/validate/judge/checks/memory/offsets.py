"""Checks an act·mul of more elements than a signed integer of 32 bits counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks.check import ACT_MUL, Check
from mlpfusion.stages.validate.judge.checks.shapes import MANY_BLOCKS, is_interpreted
from mlpfusion.stages.validate.judge.exam import Found, failed, grad_name, is_refusal, passed, reported, undecided
from mlpfusion.stages.validate.judge.worker_handle import RaisedError
from mlpfusion.stages.validate.layouts import PACKED

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

BOUNDARY: Final = 2**31  # elements; 4.3 GB in 16 bits
BLOCK: Final = (512, 4096)
# Up to here float32 counts exactly, by which a kernel may compute rows. An interpreter would take hours for 2^31.
MOST_ON_A_CPU: Final = 2**24
MOST_SECONDS: Final = 8.0  # of an interpreter for so many


def offsets(exam: Exam, dtype: Dtype) -> Found:
    """Beyond 2^31 elements (2^24 on a CPU) results are what they are before, from the first to the last."""
    if exam.device == "cuda" or BOUNDARY <= MOST_ON_A_CPU:
        found = _judged(exam, dtype, BOUNDARY, grad=exam.lack(dtype) is None)
        return found if found.status != "pass" else _judged_packed(exam, dtype, BOUNDARY) or found
    needed = f"offsets past {_shown(BOUNDARY)} need a GPU, with some 20 GB of free memory"
    if is_interpreted(exam) and _seconds(exam, dtype) > MOST_SECONDS:
        return undecided(needed)
    wrong = _judged_packed(exam, dtype, MOST_ON_A_CPU)
    return wrong or undecided(f"{needed}; where gate and up are {PACKED} it is right past {_shown(MOST_ON_A_CPU)}")


def _seconds(exam: Exam, dtype: Dtype) -> float:
    """How long an interpreter would take for the elements that a CPU is asked for."""
    shape = MANY_BLOCKS[0]
    if (dtype, shape) not in exam.seconds:
        try:
            exam.forward(exam.operands(dtype, shape, "offsets"))
        except RaisedError as error:
            if not is_refusal(error):
                raise
            return 0.0
    return exam.seconds[dtype, shape] * MOST_ON_A_CPU / (shape[0] * shape[1])


def _judged_packed(exam: Exam, dtype: Dtype, boundary: int) -> Found | None:
    """What is wrong with halves of one tensor, whose rows and columns a kernel has to compute, if something is."""
    found = _judged(exam, dtype, boundary, grad=False, packed=True)
    return found if found.status == "fail" else None


def _judged(exam: Exam, dtype: Dtype, boundary: int, *, grad: bool, packed: bool = False) -> Found:
    given = exam.operands(dtype, BLOCK, "offsets")
    called = _called(exam, given, boundary, grad=grad, packed=packed)
    if isinstance(called, Found):
        return called
    results, facts = called
    exam.largest["M"] = facts["rows"]
    reference = exam.reference(given, grad=len(results) > 1)
    where = f", where gate and up are {PACKED}," * packed
    for name, (count, first) in facts["off"].items():
        what = "the result" if name == "y" else grad_name(name)
        if count:
            side = "behind" if first >= boundary else "before"
            bits = 24 if boundary == MOST_ON_A_CPU else 32
            return failed(
                f"of {facts['rows']}x{BLOCK[1]} elements{where} {count} of {what} are others than the same operands "
                f"give at the start, the first at {first}, {side} {_shown(boundary)}: is an offset computed in {bits} "
                "bits?"
            )
        if not bounds.is_close(results[name], reference[name].to(results[name].dtype), dtype):
            return failed(f"of {facts['rows']}x{BLOCK[1]} elements{where} {what} is wrong at the start")
    also = "" if len(results) > 1 else "; gradients were not judged there"
    return passed(f"right on either side of {_shown(boundary)} elements and up to the last{also}")


def _called(exam: Exam, given: Tensors, boundary: int, *, grad: bool, packed: bool) -> tuple[Tensors, Facts] | Found:
    """Results and facts, with gradients where there is memory for them, or why there are none."""
    facts: Facts = {}
    for trains in (True, False) if grad else (False,):
        try:
            results, facts = exam.ask("far", given, boundary=boundary, grad=trains, packed=packed)
        except RaisedError as error:
            if error.why == "memory":
                continue
            if not is_refusal(error):
                raise
            return reported(f"refuses more than {_shown(boundary)} elements: {error}")
        if results:
            return results, facts
    return too_little(facts)


def too_little(facts: Facts) -> Found:
    """That the memory is not enough: by how much, or that a call ran out of it."""
    if not facts:
        return undecided(f"it runs out of memory with {_shown(BOUNDARY)} elements")
    needed, free = (facts[name] / 1e9 for name in ("needed", "free"))
    return undecided(f"offsets past {_shown(BOUNDARY)} need {needed:.0f} GB; the GPU has {free:.0f} GB free")


def _shown(boundary: int) -> str:
    return f"2^{boundary.bit_length() - 1}"


CHECKS: Final = (
    Check(
        "offsets",
        "more than 2^31 elements, where a GPU has the memory; on a CPU halves of more than 2^24",
        ACT_MUL,
        offsets,
        "narrow",
    ),
)
