"""Counts the launches of Triton kernels and CUDA graphs that a target makes, and can change what they write."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator


class Change(NamedTuple):
    """What a launch left in one of its tensors, and which elements of it are others than before."""

    after: Tensor
    where: Tensor


class Written:
    """What each launch of a call wrote; with that of another call, in its place what that call's launch wrote there.

    So it is told what depends on the numbers that a launch writes from what needs it to write anything. A launch that
    only copies keeps what it wrote: it has computed nothing. `is_known` is false where a launch may have written what
    it does not show, as that of a graph, or where the other call's launches are others.
    """

    def __init__(self, other: Written | None = None) -> None:
        self.launches: list[tuple[Change, ...]] = []
        self.is_known: bool = other is None or other.is_known
        self._other = other

    def launched(self, launch: Any, *args: Any, **kwargs: Any) -> Any:
        """Launch, and keep what is another in the tensors that it was given."""
        tensors = self._tensors((args, tuple(kwargs.values())))
        before = [tensor.clone() for tensor in tensors]
        done = launch(*args, **kwargs)
        _synchronize(tensors)
        changes = tuple(Change(now.clone(), _bits(now) != _bits(old)) for now, old in zip(tensors, before, strict=True))
        if self._other is not None:
            self._exchange(tensors, before, changes, self._other)
        self.launches.append(changes)
        return done

    def _exchange(
        self, tensors: list[Tensor], before: list[Tensor], changes: tuple[Change, ...], other: Written
    ) -> None:
        index = len(self.launches)
        theirs = other.launches[index] if index < len(other.launches) else ()
        if [each.after.shape for each in theirs] != [each.shape for each in tensors]:
            self.is_known = False
            return
        for tensor, own, their in zip(tensors, changes, theirs, strict=True):
            if bool(own.where.any()) and not any(_is_copy(own, each) for each in before):
                tensor.copy_(torch.where(own.where, their.after.to(tensor.dtype), own.after))

    def _tensors(self, given: Any) -> list[Tensor]:
        """The tensors among arguments, in tuples and behind descriptors too; what may be an address is not known."""
        if isinstance(given, Tensor):
            return [given.data]  # what is put there is no change that autograd should know of
        if isinstance(given, tuple | list):
            return [tensor for each in given for tensor in self._tensors(each)]
        base = getattr(given, "base", None)
        if isinstance(base, Tensor):
            return [base.data]
        if hasattr(given, "data_ptr") or (isinstance(given, int) and given >= FIRST_ADDRESS):
            self.is_known = False
        return []


class Launches:
    """How many launches were `tried` and came back, and whether they do anything; Inductor's are not among them.

    `replays` are launches of graphs, whose kernels were seen, if at all, when they were captured. `written` has what
    they wrote, if that is asked.
    """

    def __init__(self, *, off: bool = False, written: Written | None = None) -> None:
        self.tried = 0
        self.count = 0
        self.replays = 0
        self.off = off
        self.written = written


_COUNTED: list[Launches] = []  # all that count now, the innermost last
_WITHIN: Final = threading.local()  # whether a thread is in `run` of a kernel, which calls its launcher

# A compiled kernel has a launcher of its card's maker, which a target can call without `kernel[grid]`.
LAUNCHERS: Final = (
    ("triton.backends.nvidia.driver", "CudaLauncher"),
    ("triton.backends.amd.driver", "HIPLauncher"),
)
INDUCTOR: Final = "torch._inductor."
FIRST_ADDRESS: Final = 2**32  # numbers below it are sizes and strides
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
def counted(*, off: bool = False, written: Written | None = None) -> Iterator[Launches]:
    """Count launches while this is on; with `off` none of them does anything, and `written` has what each writes."""
    _COUNTED.append(Launches(off=off, written=written))
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
            if each.written is not None:
                each.written.is_known = False
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
    written = next((each.written for each in reversed(_COUNTED) if each.written is not None), None)
    if any(each.off for each in _COUNTED):
        done = None
    else:
        done = launch(*args, **kwargs) if written is None else written.launched(launch, *args, **kwargs)
    for each in _COUNTED:
        each.count += 1
    return done


def _bits(tensor: Tensor) -> Tensor:
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.contiguous().view(whole)


def _is_copy(own: Change, given: Tensor) -> bool:
    """Whether a launch wrote the numbers of one of its tensors, in the places in which they are there."""
    if given.shape != own.after.shape:
        return False
    return bool((_bits(given.to(own.after.dtype)) == _bits(own.after))[own.where].all())


def _synchronize(tensors: list[Tensor]) -> None:
    """Wait for a launch on whichever stream."""
    if any(tensor.is_cuda for tensor in tensors):
        torch.cuda.synchronize()


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
