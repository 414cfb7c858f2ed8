"""Records of the traces of one job, a rank each, and of how two jobs differ.

Times are microseconds of one call, medians of a rank's calls; `None` means "not known", never zero.
"""

from __future__ import annotations

from typing import Literal

from mlpfusion.records.base import Record
from mlpfusion.records.trace import Share


class Late(Record, frozen=True, kw_only=True):
    """How late a rank arrives at the collectives of a call, and how long it keeps the first to arrive waiting, in µs.

    A collective ends for all ranks at once, so that who arrives last spends the shortest time in it: clocks of
    different hosts are not used. `us` is the rank's time behind the first, summed over its collectives, `held_us` the
    part of it at those where it arrives last, which are `last` of the `of` that were matched in all calls.
    """

    us: float
    held_us: float
    last: int
    of: int


class Rank(Record, frozen=True, kw_only=True):
    """The trace of one rank. `by` is where the rank is from: the trace's distributedInfo, a word or a number in the
    name, the device that its process used in a merged trace, or nowhere.

    `times` has the `call` on host and device, its parts on the device (`compute` alone, `communication` alone, which is
    exposed, `both`, `idle`), then the sum of the kernels of each category. It is empty where `incomplete` says why.
    """

    source: str
    rank: int | None
    by: Literal["trace", "name", "number", "device", "unknown"]
    world_size: int | None = None
    backend: str | None = None
    gpu: str | None = None
    device: Literal["cuda", "cpu"] = "cuda"
    call: str | None = None
    calls: int = 0
    kernels: int = 0
    incomplete: str | None = None
    times: tuple[Share, ...] = ()
    late: Late | None = None
    findings: tuple[str, ...] = ()


class Refused(Record, frozen=True, kw_only=True):
    """A file that is in no figure, and why: it cannot be read, repeats a rank, is of another job, or is no trace."""

    source: str
    rank: int | None
    reason: str


class RankSpread(Record, frozen=True, kw_only=True):
    """One time over the ranks: the shortest and the longest with whose it is (the source where no rank is known)."""

    name: str
    low: float
    low_rank: int | str
    median: float
    high: float
    high_rank: int | str


class Job(Record, frozen=True, kw_only=True):
    """The traces of one job, by rank; those of unknown rank last.

    `world_size` and `backend` are those of most traces. `missing` ranks have no trace, `damaged` ones none that can be
    read, `left_out` are second traces of a rank, traces of other jobs, and files that are no trace. `spreads` are over
    the ranks that ran the same call on the same kind of device. `summary` says the most important
    in sentences, `notes` what else differs.
    """

    ranks: tuple[Rank, ...]
    world_size: int | None = None
    backend: str | None = None
    missing: tuple[int, ...] = ()
    damaged: tuple[Refused, ...] = ()
    left_out: tuple[Refused, ...] = ()
    spreads: tuple[RankSpread, ...] = ()
    collectives: int = 0
    summary: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class JobTimeChange(Record, frozen=True, kw_only=True):
    """One time of `Rank.times` in two jobs: the medians over the ranks."""

    name: str
    a_us: float
    b_us: float


class RankChange(Record, frozen=True, kw_only=True):
    """The call of one rank in two jobs."""

    rank: int
    a_us: float
    b_us: float


class JobDifference(Record, frozen=True, kw_only=True):
    """How two jobs differ. `times` are over the `ranks` that both have; `reasons` say what is not compared."""

    a: str
    b: str
    a_devices: tuple[str, ...]
    b_devices: tuple[str, ...]
    a_ranks: int
    b_ranks: int
    times: tuple[JobTimeChange, ...] = ()
    ranks: tuple[RankChange, ...] = ()
    reasons: tuple[str, ...] = ()
