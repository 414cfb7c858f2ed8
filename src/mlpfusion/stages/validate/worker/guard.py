"""Watches a target's allocations: fills them with a pattern and guards a margin behind each."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

from mlpfusion.stages.validate.channel import PATTERNS

if TYPE_CHECKING:
    from collections.abc import Iterator

# Elements behind each tensor: as many as the largest block of a kernel whose mask lets everything through.
MARGIN: Final = 65536


class Watched(NamedTuple):
    """An allocation of the target: its memory with the margin, and how many elements of it are the tensor's."""

    memory: Tensor
    elements: int


class Watch:
    """The allocations made while it was on, each filled with one pattern."""

    def __init__(self, pattern: float) -> None:
        self.pattern = pattern
        self.seen: list[Watched] = []

    def watched(self, made: Tensor, make: Any) -> Tensor:
        """A tensor like the one that was allocated, in memory with the pattern and a margin."""
        if (
            type(made) is not Tensor
            or not made.is_floating_point()
            or made.layout != torch.strided
            or made.device.type == "meta"
            or not made.numel()
        ):
            return made
        elements = 1 + sum((size - 1) * stride for size, stride in zip(made.shape, made.stride(), strict=True))
        memory = make(elements + MARGIN, dtype=made.dtype, device=made.device).fill_(self.pattern)
        self.seen.append(Watched(memory, elements))
        with torch.no_grad():
            placed = make(0, dtype=made.dtype, device=made.device)
            placed.set_(memory.untyped_storage(), 0, made.shape, made.stride())
            placed.requires_grad_(made.requires_grad)
        same: Tensor = placed
        return same

    def overwritten(self) -> dict[str, int]:
        """How many elements behind tensors were written, and the distance of the farthest from the end (0: none)."""
        count = farthest = 0
        for watched in self.seen:
            margin = watched.memory[watched.elements :]
            touched = ~margin.isnan() if self.pattern != self.pattern else margin != self.pattern
            where = touched.nonzero()
            count += where.numel()
            if where.numel():
                farthest = max(farthest, int(where.max()) + 1)
        return {"behind": count, "farthest": farthest}


class _Allocators:
    """`torch.empty` and its kin, wrapped once: compiled code holds on to the functions that it was compiled with."""

    PLACES: Final = (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch, "empty_strided"),
        (Tensor, "new_empty"),
        (Tensor, "new_empty_strided"),
    )

    def __init__(self) -> None:
        self.current: Watch | None = None
        self._originals: list[Any] = []

    def install(self) -> None:
        """Put the wrappers in their places, unless they are there."""
        if not self._originals:
            self._originals = [getattr(place, name) for place, name in self.PLACES]
            for (place, name), original in zip(self.PLACES, self._originals, strict=True):
                setattr(place, name, self._watched(original))

    def restore(self) -> None:
        """Take them away again."""
        for (place, name), original in zip(self.PLACES, self._originals, strict=False):
            setattr(place, name, original)
        self._originals = []

    def _watched(self, original: Any) -> Any:
        make = self._originals[0]

        @functools.wraps(original)
        def allocate(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if torch.compiler.is_compiling() or self.current is None:
                return made
            return self.current.watched(made, make) if kwargs.get("out") is None else made

        return allocate


_ALLOCATORS: Final = _Allocators()


@contextlib.contextmanager
def watch(pattern: str) -> Iterator[Watch]:
    """Give the floating-point tensors that `torch.empty` and its kin make a pattern and a margin while this is on.

    Code that imported such a function by name before `install` escapes; freed memory of the same sizes is therefore
    filled as well, by `spoil`. The wrappers stay, and do nothing, until `restore`.
    """
    _ALLOCATORS.install()
    outer, _ALLOCATORS.current = _ALLOCATORS.current, Watch(PATTERNS[pattern])
    try:
        yield _ALLOCATORS.current
    finally:
        _ALLOCATORS.current = outer


def install() -> None:
    """Put the wrappers in place, which do nothing until `watch`: code that imports a function by name gets them too."""
    _ALLOCATORS.install()


def restore() -> None:
    """Give PyTorch its own functions back, in a process that does more than run targets."""
    _ALLOCATORS.restore()


def spoil(like: Tensor, pattern: str) -> None:
    """Fill memory of a tensor's size with a pattern and free it, so that the next tensor of that size finds it."""
    held = [torch.empty(like.numel(), dtype=like.dtype, device=like.device).fill_(PATTERNS[pattern]) for _ in range(4)]
    del held


def place(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy of a contiguous tensor on `device` with a margin of nan behind it: a read past the end brings nan."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor.to(device, copy=True)
    memory = torch.full((tensor.numel() + MARGIN,), float("nan"), dtype=tensor.dtype, device=device)
    memory[: tensor.numel()] = tensor.reshape(-1).to(device)
    placed = torch.empty(0, dtype=tensor.dtype, device=device)
    return placed.set_(memory.untyped_storage(), 0, tensor.shape, tensor.contiguous().stride())
