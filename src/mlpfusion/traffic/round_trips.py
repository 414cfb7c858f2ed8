"""Follows the values of a call through its launches and counts those written to memory and read back.

A value is one version of a byte range of a buffer. A kernel that writes the range starts a new one, so an in-place
kernel ends one value and starts another. What one launch writes to one buffer is one value, whatever its shape.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from mlpfusion.records.traffic import Intermediate, Step
from mlpfusion.traffic import byte_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.traffic import Access, IntermediateRole, Launch, Ledger, Role
    from mlpfusion.traffic.byte_ranges import Intervals


class Value(NamedTuple):
    """One value: the launch that wrote it, its bytes, and each launch that reads some of it with how many bytes."""

    writer: int
    bytes: int
    readers: tuple[tuple[int, int], ...]


def values(ledger: Ledger) -> tuple[Value, ...]:
    """Every value that the call writes, read or not, in order of writing, leaving out launches that are not trusted."""
    live: dict[int, list[_Living]] = defaultdict(list)
    every: list[_Living] = []
    for index, launch in enumerate(ledger.launches):
        if launch.unknown is not None:
            continue
        for buffer, pieces in _by_buffer(launch.reads).items():
            for value in live[buffer]:
                read = byte_ranges.size(byte_ranges.overlap(value.pieces, pieces))
                if read:
                    value.readers.append((index, read))
        for buffer, pieces in _by_buffer(launch.writes).items():
            for value in live[buffer]:
                value.pieces = byte_ranges.minus(value.pieces, pieces)
            live[buffer] = [value for value in live[buffer] if len(value.pieces)]
            born = _Living(index, pieces)
            live[buffer].append(born)
            every.append(born)
    return tuple(Value(value.writer, value.bytes, tuple(value.readers)) for value in every)


class _Living:
    """A value while the call is followed: `pieces` is what no later launch has overwritten yet."""

    __slots__ = ("bytes", "pieces", "readers", "writer")

    def __init__(self, writer: int, pieces: Intervals) -> None:
        self.writer = writer
        self.pieces = pieces
        self.bytes = byte_ranges.size(pieces)
        self.readers: list[tuple[int, int]] = []


def _by_buffer(accesses: Sequence[Access]) -> dict[int, Intervals]:
    found: dict[int, Intervals] = {}
    for access in accesses:
        pieces = byte_ranges.intervals(access.runs)
        known = found.get(access.buffer)
        found[access.buffer] = pieces if known is None else byte_ranges.union(known, pieces)
    return found


def _size(accesses: Sequence[Access]) -> int:
    """Bytes in all of these, those that two of them share counted once."""
    return sum(byte_ranges.size(pieces) for pieces in _by_buffer(accesses).values())


class Flow(NamedTuple):
    """What follows from a ledger: its round-trips, and its launches as steps."""

    intermediates: tuple[Intermediate, ...]
    steps: tuple[Step, ...]

    @property
    def intermediate_bytes(self) -> int:
        """Bytes that the round-trips move: one write and every read of each."""
        return sum(value.moved_bytes for value in self.intermediates)

    @property
    def derived_bytes(self) -> int:
        """Bytes that all launches read and write."""
        return sum(step.bytes for step in self.steps)


def flow(ledger: Ledger, roles: Sequence[Role | None] = (), kernels: Sequence[tuple[int, ...]] = ()) -> Flow:
    """The round-trips and steps of a ledger; `roles` and `kernels` say, for each launch, what a trace knows of it.

    A value counts where one launch writes it and another reads it. A value that is never read back (the result, a mask
    for later) and one that is not written (inputs, weights) are none.
    """
    launches = ledger.launches
    known = list(roles) or [None] * len(launches)
    labels = [_label(index, launch, role) for index, (launch, role) in enumerate(zip(launches, known, strict=True))]
    found: list[Intermediate] = []
    read: dict[int, list[int]] = defaultdict(list)
    written: dict[int, list[int]] = defaultdict(list)
    for value in values(ledger):
        readers = [(index, size) for index, size in value.readers if index != value.writer]
        if not readers:
            continue
        written[value.writer].append(len(found))
        for index, _ in readers:
            read[index].append(len(found))
        crosses = not launches[value.writer].backward and any(launches[index].backward for index, _ in readers)
        found.append(
            Intermediate(
                role=_role(known[value.writer], [known[index] for index, _ in readers]),
                bytes=value.bytes,
                moved_bytes=value.bytes + sum(size for _, size in readers),
                written_by=labels[value.writer],
                read_by=tuple(labels[index] for index, _ in readers),
                saved=crosses,
            )
        )
    steps = tuple(
        Step(
            op=launch.op,
            source=launch.source,
            read_bytes=_size(launch.reads),
            write_bytes=_size(launch.writes),
            flops=launch.flops,
            backward=launch.backward,
            kernels=kernels[index] if kernels else (),
            values_read=tuple(read[index]),
            values_written=tuple(written[index]),
        )
        for index, launch in enumerate(launches)
    )
    return Flow(tuple(found), steps)


def _label(index: int, launch: Launch, role: Role | None) -> str:
    return f"{index + 1} {launch.op if role in (None, 'other') else role}"


def _role(writer: Role | None, readers: Sequence[Role | None]) -> IntermediateRole:
    """What a value is to the MLP, from the kernel that writes it and those that read it."""
    if writer == "gate_gemm":
        return "gate"
    if writer == "up_gemm":
        return "up"
    if writer == "gate_up_gemm":  # with the activation in its epilogue what it writes goes straight to down
        return "product" if "down_gemm" in readers else "gate_up"
    if writer == "activation":
        return "act"
    return "product" if writer in ("mul", "act_mul") else "other"
