"""Where and with what a result was measured: from an allow-list, and what differed between processes of one race."""

from __future__ import annotations

import msgspec

from mlpfusion.records.base import Record
from mlpfusion.units import Count, Reading, Share, Some


class Readings(Record, frozen=True, kw_only=True):
    """What `n` readings of one sensor were: the lowest, the median and the highest, in the unit of their field."""

    n: Some
    low: Reading
    median: Reading
    high: Reading


class Process(Record, frozen=True, kw_only=True):
    """One process of a race: what may differ from the next one.

    `started` is UTC. The readings are NVML's, between rounds and never inside a clock; `throttle_reasons` are those
    that held at any of them, by NVML's names. `neighbours` is the share of the host's CPU time, 0 to 1, that background
    load took. `kernels` has the kernels' names of each backend that ran others here than its row says. `reasons` says
    of each field that is None why.
    """

    started: str
    sm_clock_mhz: Readings | None = None
    power_w: Readings | None = None
    temperature_c: Readings | None = None
    throttle_reasons: tuple[str, ...] | None = None
    neighbours: Share | None = None
    kernels: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    reasons: dict[str, str] = msgspec.field(default_factory=dict)


class Card(Record, frozen=True, kw_only=True):
    """The settings of a card that change its speed; `reasons` says of each that is None why.

    `locked_clocks` is told by the readings of a race. `digest` is equal for results of one card and one user, and tells
    nobody else which card that is.
    """

    power_limit_w: Reading | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    highest_sm_clock_mhz: Count | None = None
    locked_clocks: bool | None = None
    digest: str | None = None
    reasons: dict[str, str] = msgspec.field(default_factory=dict)


class Checkout(Record, frozen=True, kw_only=True):
    """The commit of the checkout that mlpfusion ran from, and whether its files were those of the commit."""

    commit: str
    clean: bool


class Environment(Record, frozen=True, kw_only=True):
    """Where a result was measured: an allow-list of facts, never the whole environment.

    `distributions` are the versions of all that stands behind the backends that ran, as of their rows. `card` is None
    on a CPU, and in files that are older; so is `checkout` unless mlpfusion ran from one.
    """

    python: str
    platform: str
    torch: str
    triton: str | None
    liger_kernel: str | None
    kernels: str | None
    cuda: str | None
    driver: str | None
    sm_clock_mhz: Count | None
    memory_clock_mhz: Count | None
    float32_matmul_precision: str
    flags: dict[str, str] = msgspec.field(default_factory=dict)
    distributions: dict[str, str | None] = msgspec.field(default_factory=dict)
    card: Card | None = None
    checkout: Checkout | None = None
