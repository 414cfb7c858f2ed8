"""Records that stages pass on and result files contain: frozen, JSON both ways.

Times are microseconds, sizes bytes; `None` means "not measured or not emitted", never zero.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec

from mlpfusion.device import Device
from mlpfusion.records.base import Record
from mlpfusion.records.clocks import Bound, Clocks
from mlpfusion.records.comparison import SelfRow
from mlpfusion.records.environment import Environment, Process
from mlpfusion.records.traffic import Ceilings, Intermediate, Role, ScheduledGraph, Step, WorkKind
from mlpfusion.spec import Workload
from mlpfusion.units import Count, Error, Factor, PositiveTime, Some, Time

SCHEMA: Final = 2
BASELINE: Final = "eager"  # the backend to whose times all ratios of a profile are

Status = Literal["ok", "unavailable", "failed"]
Certainty = Literal["established", "likely", "unknown"]
HostClocks = Literal["exclusive", "shared"]


# ---- what a trace says -----------------------------------------------------------------------------------------------


class Decoded(Record, frozen=True, kw_only=True):
    """What a kernel's name says; a field that the name does not settle is None.

    `tile` is torch's M x N (x K) of one block, `instruction` M x N x K of one tensor-core instruction, `cluster` the
    blocks of a cluster as the library writes them, `alignment` the elements of one aligned access to an operand and
    `vector` those of an elementwise kernel. `epilogue` is what a matrix product applies to its result, `head_dim` what
    one head of an attention holds, and `form` which form of its operator a kernel is: `tanh` or `erf` of gelu, the
    algorithm and the protocol of a collective.
    """

    library: str | None = None
    kind: WorkKind = "other"
    arch: str | None = None
    dtype: str | None = None
    tile: str | None = None
    layout: str | None = None
    stages: Count | None = None
    fused_ops: tuple[str, ...] = ()
    instruction: str | None = None
    cluster: str | None = None
    alignment: Count | None = None
    vector: Count | None = None
    split_k: bool | None = None
    epilogue: tuple[str, ...] = ()
    head_dim: Count | None = None
    form: str | None = None


class Token(Record, frozen=True, kw_only=True):
    """One piece of a kernel's name, what it means, and how sure that is."""

    text: str
    meaning: str
    certainty: Certainty


class Explanation(Record, frozen=True, kw_only=True):
    """What a kernel's name means: one sentence, the fields it settles, and its tokens in reading order.

    `demangled` is the C++ spelling of a mangled name.
    """

    name: str
    sentence: str
    decoded: Decoded
    tokens: tuple[Token, ...]
    demangled: str | None = None


class LaunchConfig(Record, frozen=True, kw_only=True):
    """How a kernel was launched: blocks in its grid and threads in a block, each in x, y and z; registers of a thread.

    Two choices of a tuner may have one name, and differ in this alone.
    """

    grid: tuple[Count, Count, Count]
    block: tuple[Count, Count, Count]
    registers: Count | None = None

    def __str__(self) -> str:
        """`24576 blocks of 256 threads, 32 registers`."""
        grid, block = ("×".join(map(str, side)) for side in (_short(self.grid), _short(self.block)))
        registers = "" if self.registers is None else f", {self.registers} registers"
        return f"{grid} blocks of {block} threads{registers}"


def _short(sides: tuple[int, ...]) -> tuple[int, ...]:
    """Without the ones at the end."""
    while len(sides) > 1 and sides[-1] == 1:
        sides = sides[:-1]
    return sides


class Kernel(Record, frozen=True, kw_only=True):
    """One device kernel of a call (on a CPU run: one leaf op or `cpp_fused_*` kernel), in order of execution.

    `launch` is None where the trace does not say it, as of copies and fills, and in results of earlier versions.
    """

    name: str
    role: Role
    decoded: Decoded
    time_us: Time | None
    p20_us: Time | None = None
    p80_us: Time | None = None
    op: str | None = None
    launched_by: str | None = None
    launch: LaunchConfig | None = None


class Launches(Record, frozen=True, kw_only=True):
    """Device work launched by one call. `runtime_launches` counts API calls by name, such as cuLaunchKernelEx."""

    kernels: Count
    memcpys: Count
    memsets: Count
    runtime_launches: dict[str, Count]
    occupancy_queries: Count
    syncs: Count


class PreOpParts(Record, frozen=True, kw_only=True):
    """CPU µs by the innermost event that owns each instant; None where no such event exists in this trace.

    `dispatch` is aten::* and other operators, `runtime` the CUDA/HIP API calls.
    """

    dynamo_cache_lookup: Time | None = None
    compiled_region_self: Time | None = None
    pregraph: Time | None = None
    aot_prologue: Time | None = None
    compiled_graph_entry: Time | None = None
    autograd_function: Time | None = None
    triton_launcher: Time | None = None
    dispatch: Time | None = None
    runtime: Time | None = None
    unattributed: Time | None = None


class PreOps(PreOpParts, frozen=True, kw_only=True):
    """CPU µs of the median call from its start to the first API call with device work behind it; the parts sum to it.

    `between_launches` is the same split from there to the last launch. `profiler_inflation` is traced over untraced
    host time of the same call.
    """

    n: Count
    time_to_first_launch: Time | None = None
    first_launch: str | None = None
    time_to_first_kernel: Time | None = None
    between_launches: PreOpParts | None = None
    host_us: Time | None = None
    profiler_inflation: Factor | None = None


class Analysis(Record, frozen=True, kw_only=True):
    """The trace analysis of one backend's call. `kernel_us` and `host_us` hold one value per call.

    `faults` are reasons not to report the trace as it is; `notes` are worth knowing.
    """

    calls: int
    kernels: tuple[Kernel, ...]
    launches: Launches
    pre_ops: PreOps
    kernel_us: tuple[float, ...]
    host_us: tuple[float, ...]
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# ---- bytes, memory, accuracy -----------------------------------------------------------------------------------------


class Traffic(Record, frozen=True, kw_only=True):
    """Bytes of device memory that one call moves. Every figure names its source by its field; `reasons` explains None.

    `minimum_bytes` keeps every intermediate on chip. `derived_bytes` is what all launches read and write, each byte of
    each once; `round_trips` how many values one kernel writes and another reads back, and `intermediate_bytes` what
    those move. Where part of the call was not observed there is no count, only `round_trips_at_least`. `other` is work
    whose bytes are not derived. `captured` says that the launches are those of a CUDA graph's capture.
    `measured_bytes` are hardware counters of the kernels as they follow each other, from a cold L2; `alone_bytes` those
    of the same kernels, each with the caches emptied before it, and neither is there if the driver copies something
    itself, which no counter sees; `explained` says why measured and derived differ.
    `limit_us` is the shortest time that the card's measured rates allow the launches one after the other. `scheduled`
    is what Inductor's scheduler reports of each graph of the call, in a separate compilation.
    """

    minimum_bytes: Count
    derived_bytes: Count | None = None
    round_trips: Count | None = None
    round_trips_at_least: Count | None = None
    intermediate_bytes: Count | None = None
    intermediates: tuple[Intermediate, ...] = ()
    steps: tuple[Step, ...] = ()
    other: tuple[str, ...] = ()
    captured: bool = False
    measured_bytes: Count | None = None
    alone_bytes: Count | None = None
    explained: str | None = None
    limit_us: PositiveTime | None = None
    scheduled: tuple[ScheduledGraph, ...] = ()
    reasons: dict[str, str] = msgspec.field(default_factory=dict)


class Memory(Record, frozen=True, kw_only=True):
    """Bytes that one call keeps for backward (unique storages, parameters excluded) and its peak above the weights."""

    saved_for_backward_bytes: Count | None = None
    peak_bytes: Count | None = None
    reasons: dict[str, str] = msgspec.field(default_factory=dict)


class Accuracy(Record, frozen=True, kw_only=True):
    """Error against the fp64 oracle: |y - r| / max(rms(r), |r|), its maximum and rms, and those over eager's own.

    None says that an element is nan or inf. In training the figures are the worst over the output and all gradients.
    """

    max_error: Error | None
    rms_error: Error | None
    eager_max_error: Error
    eager_rms_error: Error
    rows: Some
    elements: Some

    @property
    def ratio(self) -> float:
        """The larger of the two errors over eager's."""
        return max(_over(self.max_error, self.eager_max_error), _over(self.rms_error, self.eager_rms_error))

    @property
    def is_broken(self) -> bool:
        """Whether an element is nan or inf."""
        return self.max_error is None or self.rms_error is None

    def times(self, baseline: str) -> str:
        """The ratio in words: `41 times eager's error`, or why there is none."""
        if self.is_broken:
            return f"nan or inf where {baseline} is finite"
        if math.isfinite(self.ratio):
            return f"{self.ratio:.3g} times {baseline}'s error"
        return f"an error where {baseline} has none"

    @property
    def limit(self) -> float:
        """The ratio up to which a row passes: 2, or 4 where the largest of few errors is mostly luck.

        Right backends were up to 2.1 apart on 4257 elements and on 200; on 10⁴ or more all stayed within 2.
        """
        return 2.0 if self.elements >= 10_000 else 4.0


def _over(error: float | None, eager: float) -> float:
    if error == 0:
        return 0.0
    return float("inf") if error is None or eager == 0 else error / eager


# ---- rows and files --------------------------------------------------------------------------------------------------


class Setup(Record, frozen=True, kw_only=True):
    """One-time costs in seconds: binding the backend, and its first call (compilation and autotuning are in it)."""

    bind_s: Time
    first_call_s: Time


class Row(Record, frozen=True, kw_only=True):
    """One backend's result. `status` ok, or unavailable / failed with the reason the user reads.

    `distributions` are the versions of what stands behind it: packages, a loose file's digest, a repository's revision;
    None is "not installed". A row of an older file, or of a backend that did not run, has none.
    """

    backend: str
    status: Status
    reason: str | None = None
    emulated: bool = False
    tokens: Some | None = None
    setup: Setup | None = None
    accuracy: Accuracy | None = None
    kernels: tuple[Kernel, ...] = ()
    launches: Launches | None = None
    pre_ops: PreOps | None = None
    clocks: Clocks | None = None
    bound: Bound | None = None
    traffic: Traffic | None = None
    memory: Memory | None = None
    trace_file: str | None = None
    notes: tuple[str, ...] = ()
    distributions: dict[str, str | None] = msgspec.field(default_factory=dict)


class Profile(Record, frozen=True, kw_only=True):
    """A result file of `mlpfusion profile`: one row per requested backend.

    `processes` are those that raced, in the order of every clock's `rounds`, and `itself` is each half of them compared
    with the rest, as `mlpfusion compare --self` does; `command` the command line with file names in place of paths,
    None where none was typed. `ceilings` are what the card was measured to reach in the same run; None on a CPU, or
    where they could not be read. `host_clocks` says of a cell of a study whether the
    host's other workers waited while it raced, or may have raced at the same time.
    """

    schema: int
    kind: Literal["profile"]
    mlpfusion: str
    created: str
    workload: Workload
    device: Device
    environment: Environment
    rows: tuple[Row, ...]
    complete: bool
    ceilings: Ceilings | None = None
    processes: tuple[Process, ...] = ()
    itself: tuple[SelfRow, ...] = ()
    command: tuple[str, ...] | None = None
    host_clocks: HostClocks | None = None
