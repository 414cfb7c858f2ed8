"""What the clocks of a race said: samples by process and round, their summary, and the ratio to a baseline."""

from __future__ import annotations

import itertools
from typing import Literal

import msgspec

from mlpfusion.records.base import Record
from mlpfusion.units import Count, Factor, PositiveTime, Share, Some, Time

L2 = Literal["cold", "warm", "unknown"]


class Ratio(Record, frozen=True, kw_only=True):
    """Median of paired per-round ratios to a baseline and its distribution-free confidence interval.

    Of several processes the geometric mean of their medians, and Student's interval between processes.
    """

    baseline: str
    median: Factor
    low: Factor
    high: Factor
    confidence: Share
    n: Some


class Clock(Record, frozen=True, kw_only=True):
    """One clock: `n` samples in µs, their median and, from 20 samples on, the 20th and 80th percentiles.

    `l2` says whether the last-level cache was flushed before each sample; `dropped` counts the rounds without a time.
    `rounds` has one tuple per process of the race and in it one time per round: None where that round was dropped, in
    all rounds where the backend was not in that process. The rounds of one process are those of every other backend in
    it. A summary alone has no rounds.
    """

    n: Some
    median: PositiveTime
    p20: PositiveTime | None
    p80: PositiveTime | None
    l2: L2
    dropped: Count = 0
    ratio_to_eager: Ratio | None = None
    rounds: tuple[tuple[Time | None, ...], ...] = ()

    @property
    def samples(self) -> tuple[float, ...]:
        """All times that were kept, in the order of processes and rounds."""
        return tuple(time for time in itertools.chain.from_iterable(self.rounds) if time is not None)

    @property
    def is_paired(self) -> bool:
        """Whether a time can be paired with another backend's of the same process and round.

        A file of schema 1 kept no place for a round that was dropped: from the first one on its times are out of step.
        """
        return bool(self.rounds) and sum(each.count(None) for each in self.rounds) == self.dropped


class Clocks(Record, frozen=True, kw_only=True):
    """Four clocks, never mixed; `reasons` says for each absent one why.

    `wall_us` host time with synchronisation; `event_us` device events around a plain call; `kernel_us` union of kernel
    intervals in the trace; `graph_us` replay of a CUDA graph. `neighbours` is the share of the host's CPU time, 0 to 1,
    that background load took during all clocks but the trace; None where unknown.
    """

    wall_us: Clock | None = None
    event_us: Clock | None = None
    kernel_us: Clock | None = None
    graph_us: Clock | None = None
    reasons: dict[str, str] = msgspec.field(default_factory=dict)
    neighbours: Share | None = None


class Samples(Record, frozen=True, kw_only=True):
    """Raw samples of one clock of one backend, one per interleaved round; None where a round was dropped."""

    backend: str
    clock: str
    l2: L2
    values: tuple[Time | None, ...]


class Bound(Record, frozen=True, kw_only=True):
    """What limits a call: `cpu` when issuing it takes longer than the device needs, else `gpu`.

    `margin` is the longer of the two times over the shorter. `host_us` is the median of `n` samples, and from 20 on
    there are its 20th and 80th percentiles; `n` is 0 where a result file does not tell.
    """

    by: Literal["cpu", "gpu"]
    margin: Factor
    host_us: PositiveTime
    device_us: PositiveTime
    n: Count = 0
    host_p20_us: Time | None = None
    host_p80_us: Time | None = None
