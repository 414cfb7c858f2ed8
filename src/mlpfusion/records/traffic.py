"""Records of a ledger: what each launch of a call reads and writes, and the traffic derived from it.

A *run* is a number of `pieces` of `length` bytes, `pitch` bytes apart, the first at `start`. All sizes are bytes.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from mlpfusion.units import Count, Rate, Some, Time

Role = Literal[
    "gate_gemm",
    "up_gemm",
    "gate_up_gemm",
    "activation",
    "mul",
    "act_mul",
    "down_gemm",
    "memset",
    "memcpy",
    "other",
]
BoundBy = Literal["memory", "compute"]
# What a kernel does, as far as its name says.
WorkKind = Literal["gemm", "attention", "elementwise", "reduction", "communication", "memcpy", "memset", "other"]
Source = Literal["operator", "triton", "inductor", "interpreter", "declared"]
IntermediateRole = Literal["gate", "up", "gate_up", "act", "product", "other"]
# Operators that bring the input of a CUDA graph's replay and take its output away.
COPIES: Final = frozenset({"aten::copy_", "aten::_foreach_copy_"})


class Run(NamedTuple):
    """`pieces` of `length` bytes each, `pitch` bytes from start to start; `start` counts from the buffer's."""

    start: int
    length: int
    pitch: int
    pieces: int


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of one buffer that one launch reads, or writes; each byte counts once, however often it is touched."""

    buffer: int
    runs: tuple[Run, ...]

    @property
    def bytes(self) -> int:
        """How many they are."""
        return sum(run.length * run.pieces for run in self.runs)


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One operator or kernel launch of a call, in the order of the host.

    `op` is the operator (`aten::mm`) or, for a kernel launched by itself, the kernel's name, which `kernel` then holds
    too. `source` is their origin: the operator's schema and storages, Triton's own code of the kernel, the
    arguments of an Inductor kernel, the interpreter's loads and stores (exact), or the launcher (declared). `unknown`
    says why its ranges cannot be relied on. `inside` is the outermost custom operator that it ran in, with a number
    that tells two calls of one apart. `code` is the module of Inductor's code that launched it.
    """

    op: str
    source: Source
    kernel: str | None = None
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    flops: int | None = None
    backward: bool = False
    unknown: str | None = None
    inside: tuple[str, int] | None = None
    code: str | None = None


class Buffer(msgspec.Struct, frozen=True, kw_only=True):
    """One allocation of device memory: `name` is that of the input, weight or result it holds, None for a temporary."""

    bytes: int
    name: str | None = None


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The observed launches of one call, and the buffers it touched, by number.

    `captured` says that it is the ledger of the capture of a CUDA graph, whose replays launch nothing observable
    on the host. `faults` are reasons why launches may be missing. `opaque` are operators whose inside cannot be
    watched: only a trace tells how many kernels they have.
    """

    launches: tuple[Launch, ...]
    buffers: tuple[Buffer, ...]
    captured: bool = False
    faults: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()


class ScheduledGraph(msgspec.Struct, frozen=True, kw_only=True):
    """What Inductor's scheduler reports of one compiled graph, after all fusion.

    `code` is the module that was generated for it, `kernels` how many kernels that launches, those of libraries too,
    and `intermediates` the bytes of each value that one of these writes and another reads. `unknown` says why there are
    no such figures.
    """

    code: str
    kernels: Count = 0
    intermediates: tuple[Count, ...] = ()
    unknown: str | None = None


class Intermediate(msgspec.Struct, frozen=True, kw_only=True):
    """One value that a kernel of the call writes to memory and another reads back: one round-trip.

    `bytes` is its size, `moved_bytes` one write and every read. `saved` says that it waits for the backward.
    """

    role: IntermediateRole
    bytes: Count
    moved_bytes: Count
    written_by: str
    read_by: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    saved: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One launch as the traffic counts it: bytes read and written once each, and floating-point operations.

    `kernels` are the indices of its device kernels in the row's `kernels`. `measured_read_bytes` and
    `measured_write_bytes` are hardware counters within the call, `alone_bytes` those of the same kernels with the
    caches emptied before each. `time_us` is that of its kernels in the trace. `limit_us` is the shortest time that the
    card's measured rates allow, `bound` what sets it; `above` says why a shorter time can be, or that it cannot.
    """

    op: str
    source: Source
    read_bytes: Count
    write_bytes: Count
    role: Role | None = None
    flops: Count | None = None
    backward: bool = False
    kernels: tuple[Count, ...] = ()
    time_us: Time | None = None
    measured_read_bytes: Count | None = None
    measured_write_bytes: Count | None = None
    alone_bytes: Count | None = None
    limit_us: Time | None = None
    bound: BoundBy | None = None
    above: str | None = None
    values_read: tuple[Count, ...] = ()
    values_written: tuple[Count, ...] = ()

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.read_bytes + self.write_bytes


class CopyRate(msgspec.Struct, frozen=True, kw_only=True):
    """What copies of one size reach: `bytes` are those read and written together, the rate is of the median of `n`."""

    bytes: Some
    bytes_per_second: Rate
    n: Some


class ProductRate(msgspec.Struct, frozen=True, kw_only=True):
    """What a matrix product [m, k] x [k, n] reaches, by the median of `samples`."""

    m: Some
    n: Some
    k: Some
    flops_per_second: Rate
    samples: Some


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """What one card was measured to reach in one dtype, from a cold L2: copies by ascending size, matrix products."""

    dtype: str
    copies: Annotated[tuple[CopyRate, ...], msgspec.Meta(min_length=1)]
    products: Annotated[tuple[ProductRate, ...], msgspec.Meta(min_length=1)]


class DeviceWork(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of device work of a traced call, in the order of its launches.

    `kernel` is its index in the row's `kernels`, `ops` the operators around its launch, innermost first, each with a
    number that tells two of one name apart (on a CPU the work is itself an operator, the first of them), `kind` what
    its name says it is, and `replayed` whether a graph launched it.
    """

    name: str
    kernel: int
    kind: WorkKind
    ops: tuple[tuple[str, int], ...] = ()
    replayed: bool = False


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """Which device work belongs to which launch of a ledger.

    `kernels` are for each launch the indices of its kernels, empty where the trace shows none; `missing` why the ledger
    does not account for the trace, empty where it does; `other` the work that belongs to no launch and need not.
    """

    kernels: tuple[tuple[int, ...], ...]
    missing: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
