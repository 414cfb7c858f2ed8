"""Records of a trace file's contents.

Times are microseconds; `None` means "not in this trace", never zero.
"""

from __future__ import annotations

from statistics import median
from typing import Literal

from mlpfusion.records.base import Record
from mlpfusion.records.breakdown import Breakdown
from mlpfusion.records.profile import Analysis, Kernel
from mlpfusion.records.traffic import Role


class CallAlternative(Record, frozen=True, kw_only=True):
    """What else could delimit a call: a name for `--call`, its calls, and their share of the trace's device work."""

    name: str
    count: int
    share: float


class CallChoice(Record, frozen=True, kw_only=True):
    """Which events delimit a call of a trace, how many there are, and why these were taken.

    `by` is "asked" (the name was given), "annotation" (the innermost repeated one of the user's own that holds most of
    the work), "profiler_step", or "whole_trace", which is one call. `*` in a name stands for numbers. `rounded` calls
    overlap the one before by less than 1 µs; `overlapping` events of the name overlap a call by more and are left out.
    """

    by: Literal["asked", "annotation", "profiler_step", "whole_trace"]
    name: str | None
    count: int
    reason: str
    others: tuple[CallAlternative, ...] = ()
    rounded: int = 0
    overlapping: int = 0


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


class Share(Record, frozen=True, kw_only=True):
    """What something took of a call, in µs."""

    name: str
    us: float


class DeviceUse(Record, frozen=True, kw_only=True):
    """How the main device spent one call, the used one whose idle share is the median; µs.

    The call lasts to its end on host and device, but no longer than to the next call's beginning. All device work in
    that time counts: the call's `own`, else that of `others` (other calls and launches between them), else `orphans`
    (no launch in the trace); with `idle` these four are `length`. The idle time is parted by what the host did
    meanwhile: it worked (`working`, of which `tail` is after the call's last launch; by name in `did`, own times, most
    first), waited for the device before the last launch (`waiting`) or after it (`final_wait`), or had launched what
    runs next (`launched`).
    """

    call: int
    length_us: float
    own_us: float
    others_us: float
    orphans_us: float
    idle_us: float
    working_us: float
    tail_us: float
    waiting_us: float
    final_wait_us: float
    launched_us: float
    did: tuple[Share, ...] = ()


class HostUse(Record, frozen=True, kw_only=True):
    """What the host spent in a call on its way to the last launch, and on what is no steady work; µs.

    `issue` is the time from a call's start to its last launch without `waiting`: synchronisations, blocking copies, and
    launches that a full queue blocked, of which there are `blocked`. `allocating` and `initialising` (loading code,
    compiling, creating contexts) are of the whole call, and may be part of the former. All are medians of the calls but
    `allocating`, a mean: allocations are irregular.
    """

    issue_us: float
    waiting_us: float
    blocked: int
    allocating_us: float = 0.0
    initialising_us: float = 0.0


class PythonUse(Record, frozen=True, kw_only=True):
    """In which of Python's frames and modules the host was while it was in no operator and no API call; µs, most first.

    That is what pre-ops call unattributed, of the same call: before the first launch, and between launches; nothing
    where there are no pre-ops. A frame is a file without its path, a line and a function.
    """

    before_first: tuple[Share, ...] = ()
    between_launches: tuple[Share, ...] = ()


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
    """A call that is left out of the figures: how much device work it ran, and which kernel far more often than usual.

    `extra_us` is the time of those more runs of `most`, which is empty where nothing ran; `others` counts how often all
    else ran more or less than usual. `missing` are its launches without device event, `lost` is work that its graphs
    replayed in the other calls, and `damaged` counts times that cannot be.
    """

    index: int
    name: str
    work: int
    usual_work: int
    most: str
    times: int
    usual_times: int
    extra_us: float = 0.0
    others: int = 0
    missing: int = 0
    lost: int = 0
    damaged: int = 0


class Damage(Record, frozen=True, kw_only=True):
    """One place of a file (byte offset in its decompressed text) where an event was repaired or dropped."""

    offset: int
    what: Literal["repaired", "dropped"]
    reason: str


class Integrity(Record, frozen=True, kw_only=True):
    """How whole a trace is. `damage` lists the first places only; the counts are of all.

    `orphans` are device events without a launch in the trace (backlog of earlier steps), `lost` launches of calls
    without device event, `early` device events before their launch, `zero` and `negative` events by their duration.
    `frames` are Python frames that could not be read, which are not among the `dropped`. `damaged` are device events
    with a time or correlation that cannot be: `impossible` with an unknown duration, the others in no call. Of `loose`
    kernels without a correlation of their own `matched` were told by name, order and stream. `captured` are launches of
    the calls in the figures that were recorded into a graph and ran nothing.
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
    frames: int = 0
    damaged: int = 0
    impossible: int = 0
    crowded: int = 0
    loose: int = 0
    matched: int = 0
    captured: int = 0


class Reading(Record, frozen=True, kw_only=True):
    """All that one trace file says, whoever recorded it.

    `analysis` is what `profile` makes of its own traces. `incomplete` is why no average may be shown, or None: no call
    is whole. `left_out` counts the calls that are in no figure, of which `odd_calls` has the first. `pre_ops_reason` is
    why there are no pre-ops, or None. `kernel_spread` goes with `analysis.kernels`, None where no time is known.
    `timeline` is the host side of the call whose time to its first launch is the median, the one that `pre_ops` splits;
    it ends after `timeline_limit` events. `apis`, `overhead` and `compiling` are of all calls; `overhead` is never part
    of pre-ops. `damaged` are device events that cannot be, with the times that they bear; `between_calls` is device
    work launched outside the calls. `idle_share` is the part of a call, as long as `device_use` says, in which the main
    device ran nothing, whoever launched it: the median over calls (lower of two). `host_use` is None where no API call
    is recorded. `breakdown` says where the time of a call went. `python` is None in a trace without Python's frames;
    `modules` has for each of `analysis.kernels` the modules around its launch, outermost first, and is empty in a trace
    without them.
    """

    source: str
    device: Literal["cuda", "cpu"]
    gpu: str | None
    call: CallChoice
    analysis: Analysis
    integrity: Integrity
    incomplete: str | None = None
    pre_ops_reason: str | None = None
    kernel_spread: tuple[Spread | None, ...] = ()
    host_spread: Spread | None = None
    device_spread: Spread | None = None
    first_call: FirstCall | None = None
    idle_share: float | None = None
    device_use: DeviceUse | None = None
    host_use: HostUse | None = None
    breakdown: Breakdown | None = None
    graphs: tuple[GraphReplay, ...] = ()
    streams: tuple[StreamUse, ...] = ()
    python: PythonUse | None = None
    modules: tuple[tuple[str, ...], ...] = ()
    timeline: tuple[HostEvent, ...] = ()
    timeline_limit: int | None = None
    apis: tuple[Tally, ...] = ()
    overhead: tuple[Tally, ...] = ()
    overhead_outside: tuple[Tally, ...] = ()
    compiling: tuple[Tally, ...] = ()
    regions: tuple[Region, ...] = ()
    between_calls: tuple[Tally, ...] = ()
    odd_calls: tuple[OddCall, ...] = ()
    left_out: int = 0
    damaged: tuple[Tally, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def call_us(self) -> float:
        """µs of a call on host and device: findings are weighed against it."""
        device = median(self.analysis.kernel_us) if self.analysis.kernel_us else 0.0
        length = self.device_use.length_us if self.device_use else 0.0
        host = median(self.analysis.host_us) if self.analysis.host_us and not self.device_use else 0.0
        return max(device, length, host)


# ---- findings about a reading ----------------------------------------------------------------------------------------


class Finding(Record, frozen=True, kw_only=True):
    """One finding about a reading: the observation with its numbers, what it means, what to do.

    `cost_us` is how much of a call it concerns: what a remedy could save at most, or what cannot be trusted; `share`
    is that over the call's time.
    """

    id: str
    seen: str
    means: str
    do: str
    cost_us: float
    share: float = 0.0


# ---- how two readings differ -----------------------------------------------------------------------------------------


class FieldChange(Record, frozen=True, kw_only=True):
    """One thing that two kernels' names say differently, or how they were launched (`launch`)."""

    field: str
    a: str | None
    b: str | None


class KernelPair(Record, frozen=True, kw_only=True):
    """A kernel of one call and its counterpart in the other: the same name byte for byte, changed, gone or new.

    `changes` says in what two changed ones differ, and how two of one name were launched where that does;
    `difference_us` is b's median time less a's. The spreads are those of traces; a row of a result file has its
    percentiles in the kernel.
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
    """How two calls differ. `summary` says the most important in sentences; the devices' names are None if not known.

    `ops` are single operators, `chains` an outermost operator with all inside it, both where their number changed;
    they are empty where a side has no timeline, which `reasons` says.
    """

    a: str
    b: str
    kernels: tuple[KernelPair, ...]
    a_device: str | None = None
    b_device: str | None = None
    ops: tuple[CountChange, ...] = ()
    chains: tuple[CountChange, ...] = ()
    launches: tuple[CountChange, ...] = ()
    times: tuple[TimeChange, ...] = ()
    pre_ops: tuple[PartChange, ...] = ()
    summary: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
