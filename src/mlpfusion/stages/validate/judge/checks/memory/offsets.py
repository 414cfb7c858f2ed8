"""Checks an act·mul of more elements than a signed integer of 32 bits counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks.check import ACT_MUL, Check
from mlpfusion.stages.validate.judge.exam import Found, failed, grad_name, is_refusal, passed, reported, undecided
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

BOUNDARY: Final = 2**31  # elements; 4.3 GB in 16 bits
BLOCK: Final = (512, 4096)
MOST_ON_A_CPU: Final = 2**24  # an interpreter would take hours for 2^31


def offsets(exam: Exam, dtype: Dtype) -> Found:
    """Beyond 2^31 elements results are what they are before, from the first to the last."""
    if exam.device != "cuda" and BOUNDARY > MOST_ON_A_CPU:
        return undecided(f"offsets past {_shown(BOUNDARY)} need a GPU, with some 20 GB of free memory")
    given = exam.operands(dtype, BLOCK, "offsets")
    called = _called(exam, dtype, given)
    if isinstance(called, Found):
        return called
    results, facts = called
    exam.largest["M"] = facts["rows"]
    reference = exam.reference(given, grad=len(results) > 1)
    for name, (count, first) in facts["off"].items():
        what = "the result" if name == "y" else grad_name(name)
        if count:
            side = "behind" if first >= BOUNDARY else "before"
            return failed(
                f"of {facts['rows']}x{BLOCK[1]} elements {count} of {what} are others than the same operands give at "
                f"the start, the first at {first}, {side} {_shown(BOUNDARY)}: is an offset computed in 32 bits?"
            )
        if not bounds.is_close(results[name], reference[name].to(results[name].dtype), dtype):
            return failed(f"of {facts['rows']}x{BLOCK[1]} elements {what} is wrong at the start")
    also = "" if len(results) > 1 else "; gradients were not judged there"
    return passed(f"right on either side of {_shown(BOUNDARY)} elements and up to the last{also}")


def _called(exam: Exam, dtype: Dtype, given: Tensors) -> tuple[Tensors, Facts] | Found:
    """Results and facts, with gradients where there is memory for them, or why there are none."""
    facts: Facts = {}
    for grad in (True, False) if exam.lack(dtype) is None else (False,):
        try:
            results, facts = exam.ask("far", given, boundary=BOUNDARY, grad=grad)
        except RaisedError as error:
            if error.why == "memory":
                continue
            if not is_refusal(error):
                raise
            return reported(f"refuses more than {_shown(BOUNDARY)} elements: {error}")
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
    Check("offsets", "one tensor of more than 2^31 elements, where a GPU has the memory", ACT_MUL, offsets, "narrow"),
)
