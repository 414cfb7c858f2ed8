"""Records of where the time of a call went: by kind of work, and between compute, communication and idling.

Times are microseconds of one call.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from mlpfusion.records.base import Record

Category = Literal["gemm", "attention", "elementwise", "normalisation", "reduction", "communication", "copies", "other"]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)


class CategoryTime(Record, frozen=True, kw_only=True):
    """One category of device work in a call: how many pieces, the sum of their medians, its share of all categories.

    `unknown` of them have no known time.
    """

    category: Category
    count: int
    us: float
    share: float
    unknown: int = 0


class Split(Record, frozen=True, kw_only=True):
    """How the main device spent one call, whoever launched what ran; the four parts add up to `length_us`.

    The call and its length are those of `DeviceUse`. `compute_us` and `communication_us` are the times in which only
    the one ran, on any stream, so the latter is exposed; in `both_us` both ran. Copies and fills are compute.
    """

    call: int
    length_us: float
    compute_us: float
    communication_us: float
    both_us: float
    idle_us: float


class IdleCauses(Record, frozen=True, kw_only=True):
    """Why the device idled in the call of `DeviceUse`; the five causes add up to `idle_us`.

    `short_us` is in gaps below 5 µs, whatever made them. Else the next work was launched too late (`host_late_us`), or
    the host waited for the device meanwhile (`host_waits_us`), or the work had been launched before and waited for an
    event of the stream that ran last (`stream_us`). What is not certain is `unknown_us`.
    """

    idle_us: float
    host_waits_us: float
    host_late_us: float
    stream_us: float
    short_us: float
    unknown_us: float


class Queue(Record, frozen=True, kw_only=True):
    """How long launches of the calls used waited to start, from the launch's begin, and how many waited.

    `launches` have work with a start after their own, of which a graph's first counts. `queued` counts at each launch
    those that have not started, itself included.
    """

    launches: int
    delay_us: float
    worst_us: float
    worst: str
    queued: float
    most_queued: int


class Collective(Record, frozen=True, kw_only=True):
    """The collectives of one operation, type and group in a call: how many, and medians of their time over the calls.

    `exposed_us` is the part at whose time nothing else ran on the device. `bytes` are of one call, the whole size S of
    each as nccl-tests counts it; `bus_gb_s` is factor x S / time in 10^9 bytes/s, with the factors of nccl-tests, which
    the time of waiting for other ranks makes lower. Both are None where the trace does not tell.
    """

    operation: str
    count: int
    us: float
    exposed_us: float
    dtype: str | None = None
    group: str | None = None
    group_size: int | None = None
    bytes: int | None = None
    bus_gb_s: float | None = None


class CollectiveRun(Record, frozen=True, kw_only=True):
    """One collective of a call: its index in the trace, when it began on the trace's clock, how long it took.

    `key` is the same on every rank of a group: the group and its sequence number where the trace has them, else the
    operation and how many of it ran before in the trace. A rank that arrives late has the shortest time of all.
    """

    call: int
    operation: str
    key: str
    start_ns: int
    us: float
    exposed_us: float


class Rate(Record, frozen=True, kw_only=True):
    """What a call's operators of one name, of inputs of one size and type, reach: FLOP/s or bytes/s.

    `shape` is M, N, K of a matrix product (with the batch before it), else that of the result. `us` is the time of one,
    a mean of the medians of all its kernels; `work` are its FLOP (2MNK) or bytes (each input once, and the result).
    `peak_share` is of the card's datasheet peak at this type, None where none is known. A rate `above_peak` is an
    error, no result: bytes came out of a cache, or other sizes ran.
    """

    operator: str
    unit: Literal["FLOP", "bytes"]
    shape: tuple[int, ...]
    dtype: str | None
    count: int
    us: float
    work: int
    per_second: float
    peak_share: float | None = None
    above_peak: bool = False


class MLPShare(Record, frozen=True, kw_only=True):
    """What the gated MLPs take of a call: sums of the medians of their kernels.

    `layers` are the MLPs recognised in the forward. Where the call has a backward (else None), it was told for
    `backward_layers` of them, in `backward_us`, without the accumulation of weights' gradients. `kernel_share` is of
    the sum of all kernels, `call_share` of the call's length, which idle time is a part of.
    """

    layers: int
    forward_us: float
    kernel_share: float
    call_share: float
    backward_layers: int | None = None
    backward_us: float | None = None

    def gain(self, speedup: float) -> float:
        """How much faster the call becomes at most, as a fraction, by MLPs that are so many times as fast."""
        return 1 / (1 - self.call_share + self.call_share / speedup) - 1


class Breakdown(Record, frozen=True, kw_only=True):
    """Where the time of a call went.

    `categories` holds those that occur, the longest first; their times are sums of kernel time, `kernel_us` in all,
    which is more than the time in which the device worked where streams overlap (`overlapping`). On a CPU, operators
    take the place of kernels, and there is no `split`, `idle` or `queue`, which needs API calls. `mlp` is None where no
    gated MLP is recognised. `rates` need the inputs' dimensions; they and the `collectives` are in the order of their
    time, the longest first. `collective_runs` are the first 2000 of the calls used.
    """

    kernel_us: float
    categories: tuple[CategoryTime, ...]
    overlapping: bool = False
    split: Split | None = None
    idle: IdleCauses | None = None
    queue: Queue | None = None
    mlp: MLPShare | None = None
    rates: tuple[Rate, ...] = ()
    collectives: tuple[Collective, ...] = ()
    collective_runs: tuple[CollectiveRun, ...] = ()
