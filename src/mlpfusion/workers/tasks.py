"""Records of a worker's task and its answer, passed as JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from mlpfusion.device import DeviceKind
from mlpfusion.records.base import Record
from mlpfusion.records.clocks import Samples
from mlpfusion.records.environment import Readings
from mlpfusion.records.profile import Accuracy, Memory, Setup
from mlpfusion.records.traffic import Ledger, ScheduledGraph
from mlpfusion.spec import Dtype, Workload


class Qualify(Record, frozen=True, kw_only=True, tag="qualify"):
    """Bind one backend, check its numbers, and record its memory and its trace.

    With `emulate` the Triton kernels run in the interpreter on `tokens` rows and nothing is timed or traced.
    """

    backend: str
    workload: Workload
    device: DeviceKind
    seed: int
    trace: str
    calls: int
    emulate: bool
    tokens: int | None


class Race(Record, frozen=True, kw_only=True, tag="race"):
    """Time several backends against each other in one process. The name of the one at work is kept in `progress`.

    Where there is a folder for `traces`, `calls` of each backend are traced once the race is over.
    """

    backends: tuple[str, ...]
    workload: Workload
    device: DeviceKind
    seed: int
    rounds: int
    progress: str
    traces: str | None = None
    calls: int = 0


class Count(Record, frozen=True, kw_only=True, tag="count"):
    """Call each backend once between start and stop of profiling, behind a marker kernel; under Nsight Compute."""

    backends: tuple[str, ...]
    workload: Workload
    device: DeviceKind
    seed: int


class Schedule(Record, frozen=True, kw_only=True, tag="schedule"):
    """Compile one backend again, with empty caches in `folder`, and read Inductor's scheduler."""

    backend: str
    workload: Workload
    device: DeviceKind
    seed: int
    folder: str


class Ceilings(Record, frozen=True, kw_only=True, tag="ceilings"):
    """Record one trace for each copy of these sizes and each matrix product of these shapes, into `folder`."""

    dtype: Dtype
    device: DeviceKind
    copies: tuple[int, ...]
    products: tuple[tuple[int, int, int], ...]
    folder: str
    calls: int


class Trace(Record, frozen=True, kw_only=True, tag="trace"):
    """Record a trace of `calls` calls of a function of a script, without arguments."""

    script: str
    function: str
    trace: str
    calls: int


class Qualified(Record, frozen=True, kw_only=True, tag="qualified"):
    """A backend's qualification, in a separate process. `unsupported` holds the reason if it refused.

    `no_ledger` says why there is no ledger. `fell_back` is how its calls turned out to be eager's, or None;
    `replays_graphs` whether they should replay CUDA graphs.
    """

    unsupported: str | None = None
    emulatable: bool = False
    setup: Setup | None = None
    accuracy: Accuracy | None = None
    memory: Memory | None = None
    ledger: Ledger | None = None
    no_ledger: str | None = None
    fell_back: str | None = None
    replays_graphs: bool = False
    traced: bool = False
    notes: tuple[str, ...] = ()
    distributions: dict[str, str | None] = msgspec.field(default_factory=dict)


class Raced(Record, frozen=True, kw_only=True, tag="raced"):
    """All samples, why some clocks are missing, and backends whose window was disturbed, with what happened there.

    `neighbours` is the background load, a share of the host's CPU time. `untraced` says why a backend has no trace.
    `readings` are those of the card's sensors, `throttled` what kept its clocks down, `unread` why one has none.
    """

    samples: tuple[Samples, ...]
    no_graph: dict[str, str]
    invalid: dict[str, str]
    neighbours: float | None = None
    untraced: dict[str, str] = msgspec.field(default_factory=dict)
    readings: dict[str, Readings] = msgspec.field(default_factory=dict)
    throttled: tuple[str, ...] | None = None
    unread: dict[str, str] = msgspec.field(default_factory=dict)


class Scheduled(Record, frozen=True, kw_only=True, tag="scheduled"):
    """What the scheduler reports of every compiled graph, and the ledger of a call of the same code.

    `no_ledger` says why there is no ledger.
    """

    graphs: tuple[ScheduledGraph, ...]
    ledger: Ledger | None = None
    no_ledger: str | None = None


class Traced(Record, frozen=True, kw_only=True, tag="traced"):
    """The trace is written, or `misused` says why what was named cannot be called."""

    misused: str | None = None


class Done(Record, frozen=True, kw_only=True, tag="done"):
    """The task is done; its result is in files."""


class Broken(Record, frozen=True, kw_only=True, tag="broken"):
    """The worker failed in an orderly way; `kind` is "unavailable" when the backend refused, else "failed"."""

    kind: Literal["unavailable", "failed"]
    reason: str


Task = Qualify | Race | Count | Schedule | Ceilings | Trace
Answer = Qualified | Raced | Scheduled | Done | Traced | Broken


def encode(message: Task | Answer) -> bytes:
    """A task or an answer as JSON."""
    return msgspec.json.encode(message)


def decode_task(data: bytes) -> Task:
    """The task in a JSON text."""
    task: Task = msgspec.json.decode(data, type=Task)
    return task


def decode_answer(data: bytes) -> Answer:
    """The answer in a JSON text."""
    answer: Answer = msgspec.json.decode(data, type=Answer)
    return answer
