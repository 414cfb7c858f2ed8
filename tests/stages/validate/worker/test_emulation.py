"""Which errors are the interpreter's own."""

from __future__ import annotations

from mlpfusion.stages.validate.worker import emulation


def test_errors_of_the_interpreter_are_its_own() -> None:
    from triton.runtime.errors import InterpreterError

    wrapped = ValueError("a launch failed")
    wrapped.__cause__ = InterpreterError("unsupported operand")
    assert emulation.is_limit(wrapped)
    assert emulation.is_limit(RuntimeError("0 active drivers ([]). There should only be one."))
    assert not emulation.is_limit(ValueError("gate and up differ"))
