"""Watches the memory of a target's results and operands: fills it with a pattern and guards the margins around it."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mlpfusion.stages.validate.channel import PATTERNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# Elements behind each tensor: as many as the largest block of a kernel whose mask lets everything through.
MARGIN: Final = 65536
# Elements before it, which an index that is too small by a row or a tile reaches; a multiple of any vector.
BEFORE: Final = 4096
ALIGNED: Final = 64  # bytes, as PyTorch aligns what it allocates on a CPU
GRAPHS_OF_PYTORCH: Final = "torch._inductor.cudagraph_trees"


class Watched(NamedTuple):
    """An allocation of the target: its memory with both margins, and how many elements of it are the tensor's."""

    memory: Tensor
    elements: int


class Watch:
    """The allocations made while it was on, each filled with one pattern."""

    def __init__(self, pattern: float) -> None:
        self.pattern = pattern
        self.seen: list[Watched] = []

    def watched(self, made: Tensor, make: Any, *, zeros: bool = False) -> Tensor:
        """A tensor like the one that was allocated, in memory with the pattern, or with `zeros`, and margins."""
        if not _can_be_watched(made):
            return made
        elements = _extent(made)
        memory = make(BEFORE + elements + MARGIN, dtype=made.dtype, device=made.device).fill_(self.pattern)
        if zeros:
            memory[BEFORE : BEFORE + elements].zero_()
        self.seen.append(Watched(memory, elements))
        with torch.no_grad():
            placed = make(0, dtype=made.dtype, device=made.device)
            placed.set_(memory.untyped_storage(), BEFORE, made.shape, made.stride())
            if made.requires_grad:  # within a transform even requires_grad_(False) is refused
                placed.requires_grad_()
        same: Tensor = placed
        return same

    def surround(self, made: Tensor) -> None:
        """Move what an operator has made on the CPU, with its values, to memory with margins; nobody else has it yet.

        Its storage begins and ends with it, as an operator's does: PyTorch's own backward of a slice relies on that.
        """
        elements, size = _extent(made), made.element_size()
        held = bytearray((BEFORE + elements + MARGIN) * size + ALIGNED)
        first = -torch.frombuffer(held, dtype=torch.uint8).data_ptr() % ALIGNED
        memory = torch.frombuffer(held, dtype=made.dtype, count=BEFORE + elements + MARGIN, offset=first)
        memory.fill_(self.pattern)
        self.seen.append(Watched(memory, elements))
        own = torch.frombuffer(held, dtype=made.dtype, count=elements, offset=first + BEFORE * size)
        own.copy_(made.as_strided((elements,), (1,), made.storage_offset()))
        made.set_(own.untyped_storage(), 0, made.shape, made.stride())

    def overwritten(self) -> dict[str, int]:
        """How many elements before and behind tensors were written, and how far behind the farthest is (0: none)."""
        before = behind = farthest = 0
        for watched in self.seen:
            before += self._touched(watched.memory[:BEFORE]).numel()
            where = self._touched(watched.memory[BEFORE + watched.elements :])
            behind += where.numel()
            if where.numel():
                farthest = max(farthest, int(where.max()) + 1)
        return {"before": before, "behind": behind, "farthest": farthest}

    def _touched(self, margin: Tensor) -> Tensor:
        """The places of a margin that hold something else than the pattern."""
        return (~margin.isnan() if self.pattern != self.pattern else margin != self.pattern).nonzero()


def _extent(made: Tensor) -> int:
    """The elements of memory from the first of a tensor to its last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(made.shape, made.stride(), strict=True))


def _can_be_watched(made: Tensor) -> bool:
    core: Any = torch._C
    if core._functorch.is_functorch_wrapped_tensor(made):  # made within torch.func or vmap: it has no memory of its own
        return False
    is_plain = type(made) is Tensor and made.layout == torch.strided and made.device.type != "meta"
    return is_plain and made.is_floating_point() and bool(made.numel())


class _Allocators:
    """`torch.empty` and its kin, wrapped once: compiled code holds on to the functions that it was compiled with.

    Those that fill with zeros keep them: a kernel may add to them, or rely on them where it writes nothing.
    """

    PLACES: Final = (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch, "empty_strided"),
        (Tensor, "new_empty"),
        (Tensor, "new_empty_strided"),
        (torch, "empty_permuted"),
        (torch, "zeros"),
        (torch, "zeros_like"),
        (Tensor, "new_zeros"),
    )

    def __init__(self) -> None:
        self.current: Watch | None = None
        self.allocates = False  # what is made now is watched by itself
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
        make, zeros = self._originals[0], "zeros" in original.__name__

        @functools.wraps(original)
        def allocate(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self.current is None or kwargs.get("out") is not None:
                return original(*args, **kwargs)
            outer, self.allocates = self.allocates, True
            try:
                made = original(*args, **kwargs)
                return made if _is_for_a_graph_of_pytorch() else self.current.watched(made, make, zeros=zeros)
            finally:
                self.allocates = outer

        return allocate

    def surround(self, made: Any, given: Any) -> None:
        """Give margins to the tensors that an operator has made, and that share no memory with what it was given."""
        if self.current is None or self.allocates:
            return
        taken = {each.untyped_storage().data_ptr() for each in tree_leaves(given) if _is_dense(each)}
        for each in tree_leaves(made):
            if not _is_dense(each) or not _can_be_watched(each) or each.device.type != "cpu":
                continue
            memory = each.untyped_storage().data_ptr()
            if memory not in taken:
                self.current.surround(each)
            taken.add(memory)  # of two results in one memory none is moved away from the other but the first


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Has what any operator makes on the CPU watched, as a copy of a tensor."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        made = func(*args, **(kwargs or {}))
        _ALLOCATORS.surround(made, (args, kwargs))
        return made


def _is_dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided


def _is_for_a_graph_of_pytorch() -> bool:
    """Whether torch.compile's CUDA graphs warm up or record: they refuse any memory of their pool that others hold."""
    graphs = sys.modules.get(GRAPHS_OF_PYTORCH)
    if graphs is None:
        return False
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals is graphs.__dict__:  # a target may call its own code so
            return True
        frame = frame.f_back
    return False


_ALLOCATORS: Final = _Allocators()


@contextlib.contextmanager
def watch(pattern: str, *, operators: bool = False) -> Iterator[Watch]:
    """Give the floating-point tensors that `torch.empty` and its kin make a pattern and a margin while this is on.

    Code that imported such a function by name before `install` escapes; freed memory of the same sizes is therefore
    filled as well, by `spoil`. With `operators` what any operator makes on the CPU has margins too, and nothing is
    compiled. The wrappers stay, and do nothing, until `restore`.
    """
    _ALLOCATORS.install()
    outer, _ALLOCATORS.current = _ALLOCATORS.current, Watch(PATTERNS[pattern])
    try:
        mode: Any = _Operators
        with mode() if operators else contextlib.nullcontext():
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


def place(tensor: Tensor, device: torch.device, around: tuple[str, str] = ("nan", "nan")) -> Tensor:
    """A copy of a contiguous tensor on `device`, with margins before and behind it: a read outside brings nan.

    `around` names what is before and what is behind, of `channel.PATTERNS`.
    """
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor.to(device, copy=True)
    end = BEFORE + tensor.numel()
    memory = torch.empty(end + MARGIN, dtype=tensor.dtype, device=device)
    memory[:BEFORE], memory[end:] = (PATTERNS[name] for name in around)
    memory[BEFORE:end] = tensor.reshape(-1).to(device)
    placed = torch.empty(0, dtype=tensor.dtype, device=device)
    start = memory.storage_offset() + BEFORE  # while allocations are watched they have a margin of their own
    return placed.set_(memory.untyped_storage(), start, tensor.shape, tensor.contiguous().stride())


class Surroundings:
    """What the memory of some tensors holds beside their elements, and those of others in it, by its bits."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self._tensors = tuple(tensor.detach() for tensor in tensors)
        self._before = [_memory(tensor).clone() for tensor in self._tensors]

    def changed(self) -> list[int]:
        """The indices of the tensors around which something was written."""
        pairs = enumerate(zip(self._tensors, self._before, strict=True))
        return [index for index, (tensor, before) in pairs if _is_changed_beside(tensor, before, self._tensors)]


def _memory(tensor: Tensor) -> Tensor:
    """All memory of a tensor, as integers of the size of its elements."""
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.empty(0, dtype=whole, device=tensor.device).set_(tensor.untyped_storage(), 0, (count,), (1,))


def _is_changed_beside(tensor: Tensor, before: Tensor, all_tensors: tuple[Tensor, ...]) -> bool:
    now = _memory(tensor)
    if torch.equal(now, before):
        return False
    differs, places = now != before, torch.arange(now.numel(), device=now.device)
    for each in all_tensors:
        if each.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
            differs[places.as_strided(each.shape, each.stride(), each.storage_offset()).reshape(-1)] = False
    return bool(differs.any())
