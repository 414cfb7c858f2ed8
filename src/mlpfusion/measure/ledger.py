"""Writes down the launches of a call while it runs: which bytes of which buffer each of them reads and writes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from mlpfusion import regions
from mlpfusion.ledgers import COPIES, Access, Buffer, Launch, Ledger
from mlpfusion.measure import compiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from mlpfusion.ledgers import Source


class _Known:
    """One allocation: its addresses, its number, and a weak reference that tells whether it is still there."""

    __slots__ = ("number", "reference", "start", "stop")

    def __init__(self, storage: torch.UntypedStorage, number: int, start: int) -> None:
        self.reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self.number = number
        self.start = start
        self.stop = start + storage.nbytes()

    def is_there(self) -> bool:
        """Whether its memory is still its own."""
        return not self.reference.expired()  # type: ignore[no-untyped-call]


class Ledgers:
    """The ledger of one call under way.

    A buffer is one allocation, told by its storage object. The allocator hands the same address out again within a
    call, so addresses alone do not tell two buffers apart; a weak reference to the storage object does, without keeping
    its memory. Two storage objects over one living memory are one buffer.
    """

    def __init__(self, named: Mapping[str, Tensor]) -> None:
        self._known: dict[int, _Known] = {}
        self._bases: list[int] = []
        self._buffers: list[Buffer] = []
        self.launches: list[Launch] = []
        self.faults: list[str] = []
        self.opaque: list[str] = []
        self.inside: tuple[str, int] | None = None  # the custom operator that is running, and which of them it is
        self._captured: int | None = None  # the first launch of a capture
        self._kind = "cuda" if any(tensor.is_cuda for tensor in named.values()) else "cpu"
        self.quiet = 0  # above 0 while what runs belongs to a launch that is written down already
        for name, tensor in named.items():
            self.name(name, tensor)

    def name(self, name: str, tensor: Tensor) -> None:
        """Call a tensor's buffer `name`, unless it has a name; a tensor without plain memory has no buffer."""
        with suppress(RuntimeError, NotImplementedError):
            self._name(name, tensor)

    def _name(self, name: str, tensor: Tensor) -> None:
        number = self._buffer(tensor.untyped_storage()).number
        if self._buffers[number].name is None:
            self._buffers[number] = Buffer(bytes=self._buffers[number].bytes, name=name)

    def is_named(self, number: int) -> bool:
        """Whether a buffer has a name by now: before the results get theirs, that of a tensor from before the call."""
        return self._buffers[number].name is not None

    def is_here(self, tensor: Tensor) -> bool:
        """Whether a tensor lies on the device of this call: work on the host launches nothing on a GPU."""
        return tensor.device.type == self._kind

    def access(self, tensor: Tensor) -> Access | None:
        """The bytes of a strided tensor; None for an empty one.

        Raises:
            ValueError: it has no memory of its own (sparse, a wrapper), or too many pieces; the message says which.
        """
        if tensor.numel() == 0:
            return None
        if tensor.layout != torch.strided or type(tensor.data) is not torch.Tensor:
            raise ValueError(f"a {type(tensor).__name__} of layout {tensor.layout} has no plain memory")
        buffer = self._buffer(tensor.untyped_storage())
        size = tensor.element_size()
        start = tensor.data_ptr() - self._bases[buffer.number]
        runs = regions.of_strided(start, tensor.shape, [stride * size for stride in tensor.stride()], size)
        if runs is None:
            raise ValueError(
                f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} has too many pieces"
            )
        return Access(buffer=buffer.number, runs=runs)

    def span(self, base: Tensor, shape: Sequence[int], strides: Sequence[int]) -> list[Access]:
        """The bytes of a view from a tensor's first element on, wherever they lie: it may go on in another buffer.

        Raises:
            ValueError: it leaves all memory that is known, or has too many pieces.
        """
        self._buffer(base.untyped_storage())
        size = base.element_size()
        runs = regions.of_strided(base.data_ptr(), shape, [stride * size for stride in strides], size)
        if runs is None:
            raise ValueError(f"a view of shape {tuple(shape)} and strides {tuple(strides)} has too many pieces")
        pieces = regions.intervals(runs)
        found = {}
        for known in list(self._known.values()):
            if not len(pieces) or not known.is_there() or known.number in found:
                continue
            inside = (pieces[:, 0] >= known.start) & (pieces[:, 1] <= known.stop)
            if inside.any():
                start = self._bases[known.number]
                found[known.number] = Access(buffer=known.number, runs=regions.compress(pieces[inside] - start))
                pieces = pieces[~inside]
        if len(pieces):
            raise ValueError("it touches memory that belongs to none of its arguments")
        return list(found.values())

    def at(self, pieces: Any, among: Iterable[Tensor]) -> list[Access]:
        """A set of addresses as accesses to the buffers of the tensors `among`.

        Raises:
            ValueError: an address lies in none of them.
        """
        found = {}
        for tensor in among:
            buffer = self._buffer(tensor.untyped_storage())
            inside = (pieces[:, 0] >= buffer.start) & (pieces[:, 1] <= buffer.stop)
            if inside.any() and buffer.number not in found:
                base = self._bases[buffer.number]
                found[buffer.number] = Access(buffer=buffer.number, runs=regions.compress(pieces[inside] - base))
                pieces = pieces[~inside]
        if len(pieces):
            raise ValueError("it touches memory that belongs to none of its arguments")
        return list(found.values())

    def launch(
        self,
        op: str,
        source: Source,
        *,
        reads: Iterable[Tensor] = (),
        writes: Iterable[Tensor] = (),
        kernel: str | None = None,
        flops: int | None = None,
        unknown: str | None = None,
    ) -> None:
        """Write down one launch that reads and writes all of these tensors."""
        read: list[Access] = []
        written: list[Access] = []
        try:
            read = [found for tensor in reads if (found := self.access(tensor)) is not None]
            written = [found for tensor in writes if (found := self.access(tensor)) is not None]
        except (ValueError, RuntimeError, NotImplementedError) as error:  # the last two: no storage
            unknown = unknown or str(error).splitlines()[0]
        self.add(op, source, read, written, kernel=kernel, flops=flops, unknown=unknown)

    def add(
        self,
        op: str,
        source: Source,
        reads: Iterable[Access],
        writes: Iterable[Access],
        *,
        kernel: str | None = None,
        flops: int | None = None,
        unknown: str | None = None,
    ) -> None:
        """Write down one launch whose bytes are known."""
        if self._captured is None and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            self._captured = len(self.launches)
        self.launches.append(
            Launch(
                op=op,
                source=source,
                kernel=kernel,
                reads=tuple(dict.fromkeys(reads)),  # x * x reads x once
                writes=tuple(dict.fromkeys(writes)),
                flops=flops,
                backward=torch._C._current_graph_task_id() != -1,
                unknown=unknown,
                inside=self.inside,
                code=compiled.running(),
            )
        )

    def finished(self) -> Ledger:
        """What was written down. What ran before a capture warmed up: a replay has no more of it than the copies."""
        before = self.launches[: self._captured or 0]
        return Ledger(
            launches=(*(one for one in before if one.op in COPIES), *self.launches[len(before) :]),
            buffers=tuple(self._buffers),
            captured=self._captured is not None,
            faults=tuple(self.faults),
            opaque=tuple(dict.fromkeys(self.opaque)),
        )

    def _buffer(self, storage: torch.UntypedStorage) -> _Known:
        key = storage._cdata  # not used again while the weak reference is held
        known = self._known.get(key)
        if known is not None:
            return known
        start = storage.data_ptr()
        for other in self._known.values():
            if start < other.stop and other.start < start + storage.nbytes() and other.is_there():
                known = _Known(storage, other.number, start)
                break
        else:
            known = _Known(storage, len(self._buffers), start)
            self._buffers.append(Buffer(bytes=storage.nbytes()))
            self._bases.append(start)
        self._known[key] = known
        return known
