"""Makes Triton's interpreter a fair stand-in for a GPU, and detects where it is none."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from mlpfusion.measure.interpreter import list_builtins_once, round_to_nearest_even

if TYPE_CHECKING:
    from collections.abc import Iterator


class Emulation:
    """What is known of the interpreter in this process.

    `unfit` is why bf16 results say nothing, or None. `bf16_arithmetic` is set when a kernel did arithmetic on bf16
    values, for which the interpreter takes their bit patterns for integers.
    """

    def __init__(self) -> None:
        self.unfit: str | None = None
        self.bf16_arithmetic = False


def prepare() -> Emulation:
    """Let the interpreter of this process round to nearest even, and watch for arithmetic in bf16."""
    found = Emulation()
    try:
        round_to_nearest_even()
    except RuntimeError as error:
        found.unfit = str(error)
        return found
    import triton.language as tl
    from triton.runtime import interpreter

    list_builtins_once()
    builder: Any = interpreter.InterpreterBuilder
    for name in ("binary_op", "unary_op", "ternary_op", "create_dot"):
        original = getattr(builder, name, None)
        if original is None:
            found.unfit = f"this Triton's interpreter has no {name}, by which bf16 arithmetic would be detected"
            return found
        setattr(builder, name, _watched(original, found, tl.bfloat16))
    return found


def _watched(original: Any, found: Emulation, bfloat16: Any) -> Any:
    def run(self: Any, first: Any, *rest: Any) -> Any:
        if getattr(first.dtype, "scalar", None) == bfloat16:
            found.bf16_arithmetic = True
        return original(self, first, *rest)

    return run


@contextlib.contextmanager
def reversed_programs(*, is_on: bool) -> Iterator[None]:
    """Run the programs of each grid from the last to the first: on a GPU they have no order."""
    if not is_on:
        yield
        return
    from triton.runtime import interpreter

    builder: Any = interpreter.interpreter_builder
    forth = builder.set_grid_idx
    builder.set_grid_idx = lambda *at: forth(*(n - 1 - i for n, i in zip(builder.grid_dim, at, strict=True)))
    try:
        yield
    finally:
        del builder.set_grid_idx  # the instance's: its class has the original


def is_limit(error: BaseException) -> bool:
    """Whether an exception is the interpreter's, which may not be able to run what a GPU can."""
    links: list[BaseException] = [error]
    while (inner := links[-1].__cause__ or links[-1].__context__) is not None and inner not in links:
        links.append(inner)
    return any(type(link).__name__ == "InterpreterError" for link in links) or any(
        "active drivers" in str(link) for link in links
    )
