"""Which errors are the interpreter's own, and the order in which it runs programs."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from mlpfusion.stages.validate.worker import emulation


def test_errors_of_the_interpreter_are_its_own() -> None:
    from triton.runtime.errors import InterpreterError

    wrapped = ValueError("a launch failed")
    wrapped.__cause__ = InterpreterError("unsupported operand")
    assert emulation.is_limit(wrapped)
    assert emulation.is_limit(RuntimeError("0 active drivers ([]). There should only be one."))
    assert not emulation.is_limit(ValueError("gate and up differ"))


@triton.jit
def _in_turn(counter, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    for _ in range(BLOCK):
        turn = tl.load(counter)
        tl.store(out + at, turn)
        tl.store(counter, turn + 1)


@pytest.mark.parametrize("is_on", [False, True])
def test_programs_run_forth_and_loops_within_them_always_do(is_on: bool) -> None:
    counter, out = torch.zeros(1, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
    with emulation.reversed_programs(is_on=is_on):
        _in_turn[(3, 2)](counter, out, BLOCK=2)
    turns = [1, 3, 5, 7, 9, 11]
    assert out.tolist() == (turns[::-1] if is_on else turns)
    counter.zero_()
    _in_turn[(3, 2)](counter, out, BLOCK=2)
    assert out.tolist() == turns
