"""Counts the launches of Triton kernels and CUDA graphs that a target makes itself, and can turn them into no-ops."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Launches:
    """How many launches were `tried` and came back, and whether they do anything; Inductor's are not among them.

    `replays` are launches of graphs, whose kernels were seen, if at all, when they were captured.
    """

    def __init__(self, *, off: bool = False) -> None:
        self.tried = 0
        self.count = 0
        self.replays = 0
        self.off = off


_COUNTED: list[Launches] = []  # all that count now, the innermost last
_WITHIN: Final = threading.local()  # whether a thread is in `run` of a kernel, which calls its launcher

# A compiled kernel has a launcher of its card's maker, which a target can call without `kernel[grid]`.
LAUNCHERS: Final = (
    ("triton.backends.nvidia.driver", "CudaLauncher"),
    ("triton.backends.amd.driver", "HIPLauncher"),
)
INDUCTOR: Final = "torch._inductor."
# From Inductor's call of a launcher, through code that it generates, to its own module.
FRAMES: Final = 3


def install() -> None:
    """Have every launch counted: of graphs, and of kernels by a compiler or an interpreter, if there is Triton."""
    graph: Any = torch.cuda.CUDAGraph
    if not hasattr(graph.replay, "is_counted"):
        graph.replay = _replayed(graph.replay)
    try:
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction
    except ImportError:
        return
    for kind in (InterpretedFunction, JITFunction):
        if not hasattr(kind.run, "is_counted"):
            kind.run = _counted(kind.run)
    for module, name in LAUNCHERS:
        with contextlib.suppress(ImportError, AttributeError):  # a build of Triton may lack a maker
            launcher = getattr(importlib.import_module(module), name)
            if not hasattr(launcher.__call__, "is_counted"):
                launcher.__call__ = _counted_directly(launcher.__call__)


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
        outer, _WITHIN.run = getattr(_WITHIN, "run", False), True
        try:
            return _launched(run, *args, **kwargs)
        finally:
            _WITHIN.run = outer

    counting.is_counted = True  # type: ignore[attr-defined]
    return counting


def _replayed(replay: Any) -> Any:
    @functools.wraps(replay)
    def counting(*args: Any, **kwargs: Any) -> Any:
        if not _COUNTED or _is_inductors():
            return replay(*args, **kwargs)
        done = None if any(each.off for each in _COUNTED) else replay(*args, **kwargs)
        for each in _COUNTED:
            each.replays += 1  # one that raises has computed nothing
        return done

    counting.is_counted = True  # type: ignore[attr-defined]
    return counting


def _counted_directly(launch: Any) -> Any:
    @functools.wraps(launch)
    def counting(*args: Any, **kwargs: Any) -> Any:
        if not _COUNTED or getattr(_WITHIN, "run", False) or _is_inductors():
            return launch(*args, **kwargs)
        return _launched(launch, *args, **kwargs)

    counting.is_counted = True  # type: ignore[attr-defined]
    return counting


def _launched(launch: Any, *args: Any, **kwargs: Any) -> Any:
    for each in _COUNTED:
        each.tried += 1
    done = None if any(each.off for each in _COUNTED) else launch(*args, **kwargs)
    for each in _COUNTED:
        each.count += 1
    return done


def _is_inductors() -> bool:
    """Whether Inductor calls the launcher for a kernel that it compiled."""
    frame = sys._getframe(2)
    for _ in range(FRAMES):
        name = str(frame.f_globals.get("__name__"))
        # A target may call its own code so.
        if name.startswith(INDUCTOR) and getattr(sys.modules.get(name), "__dict__", None) is frame.f_globals:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False
