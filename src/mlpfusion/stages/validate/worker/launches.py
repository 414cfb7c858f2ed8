"""Counts the launches of Triton kernels that a target makes itself, and can turn them into no-ops."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Launches:
    """How many launches were `tried` and came back, and whether they do anything; Inductor's are not among them."""

    def __init__(self, *, off: bool = False) -> None:
        self.tried = 0
        self.count = 0
        self.off = off


_COUNTED: list[Launches] = []  # all that count now, the innermost last


def install() -> None:
    """Have every launch counted, by a compiler or an interpreter; without Triton there is none."""
    try:
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction
    except ImportError:
        return
    for kind in (InterpretedFunction, JITFunction):
        if not hasattr(kind.run, "is_counted"):
            kind.run = _counted(kind.run)


@contextlib.contextmanager
def counted(*, off: bool = False) -> Iterator[Launches]:
    """Count launches while this is on; with `off` none of them does anything."""
    _COUNTED.append(Launches(off=off))
    try:
        yield _COUNTED[-1]
    finally:
        _COUNTED.pop()


def _counted(run: Any) -> Any:
    @functools.wraps(run)
    def counting(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("warmup"):
            return run(*args, **kwargs)
        for each in _COUNTED:
            each.tried += 1
        done = None if any(each.off for each in _COUNTED) else run(*args, **kwargs)
        for each in _COUNTED:
            each.count += 1
        return done

    counting.is_counted = True  # type: ignore[attr-defined]
    return counting
