"""The facts that the tutorial's claims are checked against: the measured steps, and how a figure is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from mlpfusion import units
from mlpfusion.records.base import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from article_rungs import Ladder, Rung

    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Kernel
    from mlpfusion.records.trace import HostEvent, Reading

Verdict = Literal["holds", "does not hold here", "cannot be seen here"]

# The clocks that a claim can be judged by, as the table names them.
COUNTS = "counts in the trace"
NAMES = "names in the trace"
KERNELS = "kernel intervals in the trace"
TRACED_HOST = "host time in the trace"
HOST = "host time without a profiler, calls in a row"
HOST_AND_KERNELS = "host time without a profiler; kernel intervals in the trace"
EVENTS = "device events without a profiler"
COMPUTED = "computed from the shape"
OVERHEAD = "the profiler's own events in the trace"
COMPILER = "the compiler's own counters"

# Operators that only rewrite shapes and strides.
VIEWS = frozenset(
    f"aten::{name}"
    for name in ("t", "transpose", "as_strided", "reshape", "view", "_unsafe_view", "expand", "permute", "unsqueeze")
)


class UnseenError(Exception):
    """What a claim is about was not recorded here; the text says why."""


class Answer(NamedTuple):
    """Whether a claim holds, with the figures that say so."""

    holds: bool
    figures: str


class Claim(NamedTuple):
    """One statement of the tutorial: which part makes it, what it says, and how it is judged and by which clock."""

    id: str
    part: Literal["1 matmul + add", "2 nn.Linear", "2 GeGLU MLP", "2 hand-tuned kernel"]
    says: str
    clock: str
    check: Callable[[Facts], Answer]


class Judged(Record, frozen=True, kw_only=True):
    """A claim with its verdict, as it is written to the result file."""

    id: str
    part: str
    says: str
    verdict: Verdict
    figures: str
    clock: str


def judge(claim: Claim, facts: Facts) -> Judged:
    """The verdict that the facts give."""
    verdict: Verdict
    try:
        answer = claim.check(facts)
        verdict, figures = ("holds" if answer.holds else "does not hold here"), answer.figures
    except UnseenError as error:
        verdict, figures = "cannot be seen here", str(error)
    return Judged(id=claim.id, part=claim.part, says=claim.says, verdict=verdict, figures=figures, clock=claim.clock)


class Span(NamedTuple):
    """A median and its 20th and 80th percentiles, in µs."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return units.with_spread(self.median, self.low, self.high)

    def below(self, other: Span) -> bool:
        """Whether it is smaller by more than the spread of both."""
        return self.high < other.low


class Facts:
    """The ladder, asked by rung. What is not there raises `UnseenError` with the reason."""

    def __init__(self, ladder: Ladder) -> None:
        self.ladder = ladder
        self._rungs = {rung.name: rung for rung in ladder.rungs}

    def gpu(self) -> None:
        """Refuse on a machine without a GPU."""
        if self.ladder.device.kind != "cuda":
            raise UnseenError("needs a GPU; this run is on the CPU")

    def shapes(self) -> None:
        """Refuse a run on small shapes."""
        sizes = self.ladder.sizes
        if (sizes.small, sizes.large, sizes.mlp.tokens) != (64, 4096, 8192):
            raise UnseenError("needs the tutorial's shapes; this run has small ones")

    def rung(self, name: str) -> Rung:
        """One rung, run or not."""
        return self._rungs[name]

    def reading(self, name: str) -> Reading:
        """What the trace of a rung says."""
        rung = self._rungs[name]
        if rung.reading is None:
            raise UnseenError(f"{name} did not run: {rung.reason}")
        return rung.reading

    def kernels(self, name: str) -> list[Kernel]:
        """The kernels of one call on the GPU, without copies and fills."""
        self.gpu()
        return [one for one in self.reading(name).analysis.kernels if one.decoded.kind not in ("memcpy", "memset")]

    def gemms(self, name: str) -> list[Kernel]:
        """Its matrix products."""
        return [one for one in self.kernels(name) if one.decoded.kind == "gemm"]

    def others(self, name: str) -> list[Kernel]:
        """Its other kernels: pointwise ones and reductions."""
        return [one for one in self.kernels(name) if one.decoded.kind != "gemm"]

    def copies(self, name: str) -> list[Kernel]:
        """Its copies on the device."""
        self.gpu()
        return [one for one in self.reading(name).analysis.kernels if one.decoded.kind == "memcpy"]

    def activation_kernel(self, name: str) -> Kernel:
        """The one kernel that computes act(gate)·up."""
        found = [one for one in self.kernels(name) if one.role == "act_mul"]
        if len(found) != 1:
            raise UnseenError(f"{name} has {len(found)} kernels for act·mul")
        return found[0]

    def events(self, name: str) -> tuple[HostEvent, ...]:
        """The host's side of the median call, by start."""
        return self.reading(name).timeline

    def ops(self, name: str) -> list[str]:
        """The operators of one call in order, nested ones after the one around them."""
        return [event.name for event in self.events(name) if event.category == "op" and "::" in event.name]

    def clock(self, name: str, clock: str) -> Span:
        """One of a rung's clocks that run without a profiler; on a CPU run they would time the computing."""
        self.gpu()
        self.reading(name)
        found: Clock | None = self._rungs[name].clocks.get(clock)
        if found is None or found.p20 is None or found.p80 is None:
            raise UnseenError(f"{name} has no {clock} with a spread")
        return Span(found.median, found.p20, found.p80)

    def device(self, name: str) -> Span:
        """Time in which at least one kernel, copy or fill of a call ran."""
        self.gpu()
        found = self.reading(name).device_spread
        if found is None or found.p20 is None or found.p80 is None:
            raise UnseenError(f"{name} has too few calls for a spread")
        return Span(found.median, found.p20, found.p80)

    def traced_host(self, name: str) -> Span:
        """Host time of a call in the trace."""
        found = self.reading(name).host_spread
        if found is None or found.p20 is None or found.p80 is None:
            raise UnseenError(f"{name} has too few calls for a spread")
        return Span(found.median, found.p20, found.p80)


def span(kernel: Kernel) -> Span:
    """The time of one kernel over the calls."""
    if kernel.time_us is None or kernel.p20_us is None or kernel.p80_us is None:
        raise UnseenError(f"{kernel.name} has too few samples for a spread")
    return Span(kernel.time_us, kernel.p20_us, kernel.p80_us)


def around(events: tuple[HostEvent, ...], wanted: Callable[[HostEvent], bool]) -> list[str]:
    """For each wanted event the name of the operator right around it, or `-`."""
    stacks: dict[int, list[HostEvent]] = {}
    found = []
    for event in events:
        stack = stacks.setdefault(event.thread, [])
        while stack and stack[-1].depth >= event.depth:
            stack.pop()
        if wanted(event):
            owners = [one.name for one in stack if one.category == "op"]
            found.append(owners[-1] if owners else "-")
        stack.append(event)
    return found


def counted(names: list[str]) -> str:
    """`aten::mm x3, aten::mul`: names with their number, in order of appearance."""
    once = list(dict.fromkeys(names))
    return ", ".join(f"{name} x{names.count(name)}" if names.count(name) > 1 else name for name in once) or "none"
