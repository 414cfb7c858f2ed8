"""Records of a trace file's contents.

Times are microseconds; `None` means "not in this trace", never zero.
"""

from __future__ import annotations

from typing import Literal

from mlpfusion.records.base import Record
from mlpfusion.records.profile import Analysis, Kernel
from mlpfusion.records.traffic import Role


class CallChoice(Record, frozen=True, kw_only=True):
    """Which events delimit a call of a trace, how many there are, and why these were taken.

    `by` is "asked" (the name was given), "annotation" (the innermost repeated one of the user's own), "profiler_step",
    or "whole_trace", which is one call.
    """

    by: Literal["asked", "annotation", "profiler_step", "whole_trace"]
    name: str | None
    count: int
    reason: str


class Tally(Record, frozen=True, kw_only=True):
    """Events of one name: how many, and the µs of all of them (nested time counted twice) and of the longest."""

    name: str
    count: int
    total_us: float
    longest_us: float


class Spread(Record, frozen=True, kw_only=True):
    """How one figure varies over `n` calls, in µs; the percentiles are None below 20 calls."""

    n: int
    median: float
    low: float
    high: float
    p20: float | None = None
    p80: float | None = None


class HostEvent(Record, frozen=True, kw_only=True):
    """One event on the host inside a call: an operator, an annotation or an API call; µs from the call's start.

    `depth` is the number of events of its thread around it, `self_us` its time outside those inside it, `launches` how
    many launches were made inside it; a launch itself has 1. `thread` 0 is the call's own, others are numbered as they
    appear.
    """

    name: str
    category: Literal["op", "annotation", "api", "overhead"]
    start_us: float
    duration_us: float
    self_us: float
    depth: int
    thread: int
    launches: int


class GraphReplay(Record, frozen=True, kw_only=True):
    """Graph launches of one call by API: how often the host called it, and the device work that ran for that.

    Conditional and while nodes are traced once, however often they ran, so the device counts are lower bounds.
    """

    api: str
    launches: int
    kernels: int
    memcpys: int
    memsets: int


class StreamUse(Record, frozen=True, kw_only=True):
    """One stream in a call: pieces of device work, and the median µs in which it ran at least one of them."""

    device: str
    stream: str
    events: int
    busy_us: float


class Region(Record, frozen=True, kw_only=True):
    """A compiled region by its id (`frame/recompilation`, such as 0/1), and the calls that have it."""

    id: str
    calls: int  # how many
    first: int  # index of the first
    last: int


class FirstCall(Record, frozen=True, kw_only=True):
    """The first call's µs beside the median of the others, given when it is wider than them."""

    host_us: float
    kernel_us: float
    rest_host_us: float
    rest_kernel_us: float


class OddCall(Record, frozen=True, kw_only=True):
    """A call that did not run what most calls ran: how much device work, and which kernel far more often than usual."""

    index: int
    work: int
    usual_work: int
    most: str
    times: int
    usual_times: int


class Damage(Record, frozen=True, kw_only=True):
    """One place of a file (byte offset in its decompressed text) where an event was repaired or dropped."""

    offset: int
    what: Literal["repaired", "dropped"]
    reason: str


class Integrity(Record, frozen=True, kw_only=True):
    """How whole a trace is. `damage` lists the first places only; the counts are of all.

    `orphans` are device events without a launch in the trace (backlog of earlier steps), `lost` launches of calls
    without device event, `early` device events before their launch, `zero` and `negative` events by their duration.
    `lost_bytes` follow the last complete event of a truncated file; None if it is not truncated.
    """

    events: int
    dropped: int = 0
    repaired: int = 0
    damage: tuple[Damage, ...] = ()
    lost_bytes: int | None = None
    orphans: int = 0
    lost: int = 0
    early: int = 0
    zero: int = 0
    negative: int = 0
    linked_by_flow: int = 0


class Reading(Record, frozen=True, kw_only=True):
    """All that one trace file says, whoever recorded it.

    `analysis` is what `profile` makes of its own traces. `incomplete` is why no average may be shown, or None.
    `pre_ops_reason` is why there are no pre-ops, or None. `kernel_spread` goes with `analysis.kernels`. `timeline` is
    the host side of the call whose time to its first launch is the median, the one that `pre_ops` splits; it ends
    after `timeline_limit` events. `apis`, `overhead` and `compiling` are of all calls; `overhead` is never part of
    pre-ops. `between_calls` is device work launched outside the calls, `odd_calls` are calls left
    out of the figures. `idle_share` is the median over calls of the
    part of a call, from its start to its end on host and device, in which no stream ran anything.
    """

    source: str
    device: Literal["cuda", "cpu"]
    gpu: str | None
    call: CallChoice
    analysis: Analysis
    integrity: Integrity
    incomplete: str | None = None
    pre_ops_reason: str | None = None
    kernel_spread: tuple[Spread, ...] = ()
    host_spread: Spread | None = None
    device_spread: Spread | None = None
    first_call: FirstCall | None = None
    idle_share: float | None = None
    graphs: tuple[GraphReplay, ...] = ()
    streams: tuple[StreamUse, ...] = ()
    timeline: tuple[HostEvent, ...] = ()
    timeline_limit: int | None = None
    apis: tuple[Tally, ...] = ()
    overhead: tuple[Tally, ...] = ()
    overhead_outside: tuple[Tally, ...] = ()
    compiling: tuple[Tally, ...] = ()
    regions: tuple[Region, ...] = ()
    between_calls: tuple[Tally, ...] = ()
    odd_calls: tuple[OddCall, ...] = ()
    notes: tuple[str, ...] = ()


# ---- findings about a reading ----------------------------------------------------------------------------------------


class Finding(Record, frozen=True, kw_only=True):
    """One finding about a reading: the observation with its numbers, what it means, what to do.

    `cost_us` is what it costs one call, where that is known.
    """

    id: str
    seen: str
    means: str
    do: str
    cost_us: float | None = None


# ---- how two readings differ -----------------------------------------------------------------------------------------


class FieldChange(Record, frozen=True, kw_only=True):
    """One thing that two kernels' names say differently."""

    field: str
    a: str | None
    b: str | None


class KernelPair(Record, frozen=True, kw_only=True):
    """A kernel of one call and its counterpart in the other: the same name byte for byte, changed, gone or new.

    `changes` says in what two changed ones differ; `difference_us` is b's median time less a's. The spreads
    are those of traces; a row of a result file has its percentiles in the kernel.
    """

    change: Literal["same", "changed", "gone", "new"]
    role: Role
    a: Kernel | None = None
    b: Kernel | None = None
    changes: tuple[FieldChange, ...] = ()
    difference_us: float | None = None
    a_spread: Spread | None = None
    b_spread: Spread | None = None


class CountChange(Record, frozen=True, kw_only=True):
    """How often something happens in one call of each: an operator, a chain of operators (outermost first), an API."""

    name: str
    a: int
    b: int


class TimeChange(Record, frozen=True, kw_only=True):
    """How one time changed, in µs: the medians, and bounds of b - a.

    `low` and `high` come from an interval of each median with 95 % confidence; they are None for fewer than 6 samples.
    `clear` says that the bounds do not hold zero.
    """

    clock: str
    a: Spread
    b: Spread
    difference_us: float
    low_us: float | None = None
    high_us: float | None = None
    clear: bool = False


class PartChange(Record, frozen=True, kw_only=True):
    """One part of the host time before the first launch, in µs; None where a side does not have it."""

    part: str
    a_us: float | None
    b_us: float | None


class Difference(Record, frozen=True, kw_only=True):
    """How two calls differ. `summary` says the most important in sentences.

    `ops` are single operators, `chains` an outermost operator with all inside it, both where their number changed;
    they are empty where a side has no timeline, which `reasons` says.
    """

    a: str
    b: str
    kernels: tuple[KernelPair, ...]
    ops: tuple[CountChange, ...] = ()
    chains: tuple[CountChange, ...] = ()
    launches: tuple[CountChange, ...] = ()
    times: tuple[TimeChange, ...] = ()
    pre_ops: tuple[PartChange, ...] = ()
    summary: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
