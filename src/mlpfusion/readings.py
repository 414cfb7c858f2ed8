"""What a trace file says, whoever recorded it, as frozen records.

Times are microseconds; `None` means "not in this trace", never zero.
"""

from __future__ import annotations

from typing import Literal

from mlpfusion.records import Analysis, Record


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

    `depth` is the number of events of its thread around it, `self_us` its time outside those inside it, `launches` the
    number of launches made directly in it. `thread` 0 is the call's own, others are numbered as they appear.
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
    pre-ops. `between_calls` is device work launched outside the calls. `idle_share` is the median over calls of the
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
    notes: tuple[str, ...] = ()
