"""Records of a choice: a model's gated MLP, its measurements, and the backend for each token count."""

from __future__ import annotations

import itertools
from typing import Final, Literal

from mlpfusion import limits
from mlpfusion.device import Device
from mlpfusion.errors import UsageError
from mlpfusion.records.base import Record
from mlpfusion.records.clocks import Clock, Ratio
from mlpfusion.records.environment import Environment
from mlpfusion.records.profile import Memory
from mlpfusion.spec import MODES, MLPSpec, Mode
from mlpfusion.units import Share, Some

SCHEMA: Final = 1

ClockName = Literal["event_us", "graph_us", "wall_us"]
Verdict = Literal["won", "tied", "slower", "failed", "unavailable", "untimed"]
Phase = Literal["decode", "prefill", "decode and prefill", "training"]


class Model(Record, frozen=True, kw_only=True):
    """The gated MLP of a model: its name, where its figures come from, and what a reader of them should know.

    `inference_only` says what stands in the way of training it by another implementation, or is None.
    """

    name: str
    source: str
    spec: MLPSpec
    notes: tuple[str, ...] = ()
    inference_only: str | None = None


class Conditions(Record, frozen=True, kw_only=True):
    """What a choice holds for: one kind of card, and the versions of what ran on it; None is "not installed"."""

    device: str
    capability: tuple[int, int] | None
    versions: dict[str, str | None]


class Plan(Record, frozen=True, kw_only=True):
    """What the rows of a folder were measured for: rows of another plan are not mixed with them."""

    schema: int
    kind: Literal["choice plan"]
    spec: MLPSpec
    rounds: Some
    holds: Conditions


class Contender(Record, frozen=True, kw_only=True):
    """One backend at one point: its time without the samples, that time over the winner's, and why it was not chosen.

    `untimed` is right but has no time by the clock of the choice, as when Triton's interpreter ran it.
    """

    backend: str
    verdict: Verdict
    reason: str | None = None
    clock: Clock | None = None
    ratio: Ratio | None = None
    memory: Memory | None = None


class Point(Record, frozen=True, kw_only=True):
    """What was measured for one number of tokens.

    `winner` has the lowest median; `tied` are those whose ratio to it may be 1, `runner_up` is the next by
    median, tied or not. `chosen` is the winner, but for a tie with eager, which then is chosen. With nothing to choose
    all are None and `reason` says why. `neighbours` is the background load, a share of the host's CPU time.
    """

    mode: Mode
    tokens: Some
    chosen: str | None
    winner: str | None
    runner_up: str | None
    tied: tuple[str, ...]
    contenders: tuple[Contender, ...]
    reason: str | None = None
    neighbours: Share | None = None


class Range(Record, frozen=True, kw_only=True):
    """Numbers of tokens that one backend is for, both ends in it; no `last` means all that are larger.

    `measured` are the points in it; an end between two points is estimated from the times at both.
    """

    mode: Mode
    first: int
    last: int | None
    backend: str
    phase: Phase
    measured: tuple[int, ...]
    tie: bool

    def __post_init__(self) -> None:
        limits.whole("first", self.first, limits.TOKENS)
        if self.last is not None and limits.whole("last", self.last, limits.TOKENS) < self.first:
            raise UsageError(f"a range of tokens ends at {self.last} before it starts at {self.first}")


class Choice(Record, frozen=True, kw_only=True):
    """A choice file: which backend runs one MLP on one kind of card, for which numbers of tokens.

    `spec` is what one card holds of the model's MLP: its intermediate size is divided by `tp`.
    """

    schema: int
    kind: Literal["choice"]
    mlpfusion: str
    created: str
    model: Model
    tp: int
    spec: MLPSpec
    clock: ClockName
    rounds: int
    device: Device
    environment: Environment
    holds: Conditions
    points: tuple[Point, ...]
    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        limits.whole("tp", self.tp, limits.CARDS)
        limits.whole("rounds", self.rounds, limits.ROUNDS)
        for mode in MODES:
            ranges = [each for each in self.ranges if each.mode == mode]
            for one, next_one in itertools.pairwise(ranges):
                if one.last is None or one.last >= next_one.first:
                    raise UsageError(f"two ranges of tokens overlap at {next_one.first}")
