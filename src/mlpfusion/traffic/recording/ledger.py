"""Records the launches of a running call: which bytes of which buffer each reads and writes."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from mlpfusion.records.traffic import COPIES, Access, Buffer, Launch, Ledger, Run
from mlpfusion.traffic import byte_ranges
from mlpfusion.traffic.recording import generated_code
from mlpfusion.traffic.recording.host_memory import Known
from mlpfusion.traffic.recording.operands import Part, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from mlpfusion.records.traffic import Source
    from mlpfusion.traffic.recording.operands import Operand

_SCALAR: Final = 8  # bytes of the largest number


class Ledgers:
    """The ledger of one call under way.

    A buffer is one allocation, identified by its storage object. The allocator reuses an address within a
    call, so addresses alone do not tell two buffers apart; a weak reference to the storage object does, without keeping
    its memory. Storage objects over one living memory are one buffer, also where the one was gone before the other came
    and the memory is not PyTorch's.

    `earlier` is the ledger of the call before: what was there after it was there before this one. Where it is given,
    memory of this call that is read must have been written by a launch.
    """

    def __init__(self, named: Mapping[str, Tensor], earlier: Ledgers | None = None) -> None:
        self._known: dict[int, Known] = {}
        self._bases: list[int] = []
        self._buffers: list[Buffer] = []
        self.launches: list[Launch] = []
        self.faults: list[str] = []
        self.opaque: list[str] = []
        self.inside: tuple[str, int] | None = None  # the custom operator that is running, and which of them it is
        self._captured: int | None = None  # the first launch of a capture
        self._kind = "cuda" if any(tensor.is_cuda for tensor in named.values()) else "cpu"
        self._before: set[int] = set()  # buffers that are older than the call
        self._written: set[int] = set()
        self._doubts: list[str] = []  # faults, but for the ledger of a capture
        self._is_proved = earlier is not None and self._kind == "cpu"
        self.quiet = 0  # above 0 while what runs belongs to a launch that is written down already
        for name, tensor in named.items():
            self.name(name, tensor)
        for known in () if earlier is None else earlier._known.values():
            if known.is_there() and (storage := known.storage()) is not None:
                self._buffer(storage)
        self._before = set(range(len(self._buffers)))
        self._hold()

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
        """Whether a tensor is on the device of this call: work on the host launches nothing on a GPU."""
        return tensor.device.type == self._kind

    @contextmanager
    def running(self, given: Iterable[Any]) -> Iterator[None]:
        """Around whatever runs and is written down: on a CPU, memory must be as the last of these left it.

        `given` are its arguments, tensors or not; a launch within another is part of that.
        """
        if self._kind != "cpu":
            yield
            return
        for value in given:
            if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                with suppress(RuntimeError, NotImplementedError):  # without plain memory
                    self._buffer(value.untyped_storage())
        self.settle()
        before = len(self.launches)
        yield
        self._hold({access.buffer for launch in self.launches[before:] for access in launch.writes})

    def settle(self) -> None:
        """A fault if memory is not as the last launch left it."""
        for known in self._known.values():
            known.let_go()
        changed = [known for known in self._known.values() if known.has_changed()]
        if changed:
            self.fault("a tensor was changed between two launches, by what cannot be watched")
        for known in changed:
            known.hold(anew=True)

    def fault(self, reason: str) -> None:
        """Say once why launches may be missing."""
        if reason not in self.faults:
            self.faults.append(reason)

    def _hold(self, written: Iterable[int] = ()) -> None:
        """Store the contents of memory that is new, or was written."""
        if self._kind == "cpu":
            for known in self._known.values():
                known.hold(anew=known.number in set(written))

    def access(self, operand: Operand) -> Access | None:
        """The bytes of a strided tensor, or of some elements of one; None for an empty one.

        Raises:
            ValueError: it has no own memory (sparse, a wrapper), too many pieces, or elements that cannot be
                distinguished; the message has the reason.
        """
        tensor = whole(operand)
        if tensor.numel() == 0:
            return None
        if tensor.layout != torch.strided or type(tensor.data) is not torch.Tensor:
            raise ValueError(f"a {type(tensor).__name__} of layout {tensor.layout} has no plain memory")
        buffer = self._buffer(tensor.untyped_storage())
        size = tensor.element_size()
        start = tensor.data_ptr() - self._bases[buffer.number]
        if isinstance(operand, Part):
            if operand.offsets is None:
                raise ValueError("which elements an index names cannot be looked up here")
            pieces = byte_ranges.of_addresses(start + size * operand.offsets.cpu().numpy(), size)
            return Access(buffer=buffer.number, runs=byte_ranges.compress(pieces)) if len(pieces) else None
        runs = byte_ranges.of_strided(start, tensor.shape, [stride * size for stride in tensor.stride()], size)
        if runs is None:
            raise ValueError(
                f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} has too many pieces"
            )
        return Access(buffer=buffer.number, runs=runs)

    def span(self, base: Tensor, shape: Sequence[int], strides: Sequence[int]) -> list[Access]:
        """The bytes of a view from a tensor's first element on, wherever they are: it may continue in another buffer.

        Raises:
            ValueError: it leaves all memory that is known, or has too many pieces.
        """
        self._buffer(base.untyped_storage())
        size = base.element_size()
        runs = byte_ranges.of_strided(base.data_ptr(), shape, [stride * size for stride in strides], size)
        if runs is None:
            raise ValueError(f"a view of shape {tuple(shape)} and strides {tuple(strides)} has too many pieces")
        pieces = byte_ranges.intervals(runs)
        found = {}
        for known in list(self._known.values()):
            if not len(pieces) or not known.is_there() or known.number in found:
                continue
            inside = (pieces[:, 0] >= known.start) & (pieces[:, 1] <= known.stop)
            if inside.any():
                start = self._bases[known.number]
                found[known.number] = Access(buffer=known.number, runs=byte_ranges.compress(pieces[inside] - start))
                pieces = pieces[~inside]
        if len(pieces):
            raise ValueError("it touches memory that belongs to none of its arguments")
        return list(found.values())

    def at(self, pieces: Any, among: Iterable[Tensor]) -> list[Access]:
        """A set of addresses as accesses to the buffers of the tensors `among`.

        Raises:
            ValueError: an address is in none of them.
        """
        found = {}
        for tensor in among:
            buffer = self._buffer(tensor.untyped_storage())
            inside = (pieces[:, 0] >= buffer.start) & (pieces[:, 1] <= buffer.stop)
            if inside.any() and buffer.number not in found:
                base = self._bases[buffer.number]
                found[buffer.number] = Access(buffer=buffer.number, runs=byte_ranges.compress(pieces[inside] - base))
                pieces = pieces[~inside]
        if len(pieces):
            raise ValueError("it touches memory that belongs to none of its arguments")
        return list(found.values())

    def launch(
        self,
        op: str,
        source: Source,
        *,
        reads: Iterable[Operand] = (),
        writes: Iterable[Operand] = (),
        kernel: str | None = None,
        flops: int | None = None,
        unknown: str | None = None,
    ) -> None:
        """Write down one launch that reads and writes all of these tensors, or parts of them."""
        read: list[Access] = []
        written: list[Access] = []
        for operands, found in ((reads, read), (writes, written)):
            for operand in operands:
                try:
                    access = self.access(operand)
                except (ValueError, RuntimeError, NotImplementedError) as error:  # the last two: no storage
                    unknown = unknown or str(error).splitlines()[0]
                else:
                    found.extend([] if access is None else [access])
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
        read, written = tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes))  # x * x reads x once
        if self._is_proved and any(self._is_unwritten(one.buffer) for one in read):
            self.fault(f"{op} reads memory of this call that no earlier launch was observed to write")
        self._written.update(one.buffer for one in written)
        self.launches.append(
            Launch(
                op=op,
                source=source,
                kernel=kernel,
                reads=read,
                writes=written,
                flops=flops,
                backward=torch._C._current_graph_task_id() != -1,
                unknown=unknown,
                inside=self.inside,
                code=generated_code.running(),
            )
        )

    def finished(self) -> Ledger:
        """What was written down. What ran before a capture warmed up: a replay has no more of it than the copies."""
        before = self.launches[: self._captured or 0]
        return Ledger(
            launches=(*(one for one in before if one.op in COPIES), *self.launches[len(before) :]),
            buffers=tuple(self._buffers),
            captured=self._captured is not None,
            faults=(*self.faults, *(() if self._captured is not None else dict.fromkeys(self._doubts))),
            opaque=tuple(dict.fromkeys(self.opaque)),
        )

    def _is_unwritten(self, number: int) -> bool:
        """Whether a buffer is of this call and not written yet; a single number may come from the host."""
        return number not in self._written and number not in self._before and self._buffers[number].bytes > _SCALAR

    def _buffer(self, storage: torch.UntypedStorage) -> Known:
        key = storage._cdata  # not reused while the weak reference exists
        known = self._known.get(key)
        if known is not None and known.is_of(storage):
            return known
        found = Known(storage, len(self._buffers))
        shared = [other for other in self._known.values() if other is not known and self._share(found, other)]
        self._known[key] = found
        if shared:
            found.is_foreign = all(other.is_foreign for other in shared)
            found.number = self._joined({other.number for other in shared})
        else:
            self._buffers.append(Buffer(bytes=0))
            self._bases.append(found.start)
        same = [one for one in self._known.values() if one.number == found.number]
        size = max(one.stop for one in same) - min(one.start for one in same)
        self._buffers[found.number] = msgspec.structs.replace(self._buffers[found.number], bytes=size)
        return found

    def _share(self, new: Known, other: Known) -> bool:
        """Whether a new storage overlaps the memory of another."""
        if not other.overlaps(new.start, new.stop):
            return False
        if other.is_there():
            return True
        if not (new.is_foreign and other.is_foreign):
            return False  # the allocator has handed it out again
        if not other.is_held() and other.number in self._written:
            self._doubts.append("memory that is not PyTorch's is read through another tensor than it was written by")
        return other.is_held() and other.lies_at(new.start, new.stop)

    def _joined(self, numbers: set[int]) -> int:
        """Make one buffer of several, which a storage over all of them shows to be one."""
        kept, *rest = sorted(numbers)
        for number in rest:
            shift = self._bases[number] - self._bases[kept]
            for known in self._known.values():
                known.number = kept if known.number == number else known.number
            self.launches = [_moved(launch, number, kept, shift) for launch in self.launches]
            self._buffers[kept] = Buffer(bytes=0, name=self._buffers[kept].name or self._buffers[number].name)
            self._buffers[number] = Buffer(bytes=0)
            for some in (self._before, self._written):
                if number in some:
                    some.add(kept)
        return kept


def _moved(launch: Launch, number: int, to: int, shift: int) -> Launch:
    """A launch whose accesses to buffer `number` are to another, `shift` bytes further on."""

    def moved(access: Access) -> Access:
        if access.buffer != number:
            return access
        return Access(buffer=to, runs=tuple(Run(run.start + shift, *run[1:]) for run in access.runs))

    reads, writes = (tuple(moved(one) for one in some) for some in (launch.reads, launch.writes))
    return msgspec.structs.replace(launch, reads=reads, writes=writes)
