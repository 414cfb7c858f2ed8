"""Records of a prediction: a call's time on a card that is not here, and the fastest backend on it."""

from __future__ import annotations

from typing import Final, Literal

from mlpfusion.device import Peaks
from mlpfusion.records.base import Record
from mlpfusion.records.choice import Model
from mlpfusion.records.traffic import BoundBy, Role
from mlpfusion.spec import MLPSpec, Mode
from mlpfusion.units import Factor, PositiveTime, Some

SCHEMA: Final = 1

Origin = Literal["measured table", "scaled"]
Standing = Literal["least", "tied", "slower", "undecided", "not predicted"]


class Efficiency(Record, frozen=True, kw_only=True):
    """The share of a datasheet's rates that kernels reach: medians over the kernels that each rate bounds.

    `n` is how many kernels that are; `source` where they were measured.
    """

    compute: float
    memory: float
    n: int
    source: str


class MeasuredProduct(Record, frozen=True, kw_only=True):
    """A matrix product x [m, k] · wᵀ [k, n] of 16 bits that was timed on a card, and who timed it."""

    m: Some
    n: Some
    k: Some
    us: PositiveTime
    source: str


class PredictedStep(Record, frozen=True, kw_only=True):
    """One launch: its predicted µs, the 80% interval of that, and what bounds it.

    A `measured table` has products of that card, of which the `nearest` are named; `scaled` takes the share of the
    datasheet that the launch, or one like it, reaches on the card at hand. `extrapolated` says that the shape lies
    outside the table, `guard` which bound raised the time.
    """

    op: str
    role: Role | None
    predicted_us: float
    bound: BoundBy
    low_us: float | None = None
    high_us: float | None = None
    source: Origin = "scaled"
    nearest: tuple[MeasuredProduct, ...] = ()
    extrapolated: bool = False
    guard: str | None = None


class Predicted(Record, frozen=True, kw_only=True):
    """One backend's call on another card. Nothing in it was measured there.

    `low_us` and `high_us` are its 80% interval: errors of one product add up, those of different ones in squares.
    `total_us` is the time of the call where a `guard` raised it above that of its launches.
    `overlap` is the time that the kernels took together on the card at hand over the sum of their times. `incomplete`
    names a matrix product whose operations are not known: the call takes at least what is predicted. `error` and
    `worst_error` are in files of before there were intervals alone.
    """

    backend: str
    card: str
    peaks: Peaks
    efficiency: Efficiency
    steps: tuple[PredictedStep, ...]
    low_us: float | None = None
    high_us: float | None = None
    overlap: float = 1.0
    total_us: float | None = None
    guard: str | None = None
    error: float | None = None
    worst_error: float | None = None
    incomplete: str | None = None

    @property
    def predicted_us(self) -> float:
        """The launches as they overlap at hand, without the time between them; or what a guard has raised that to."""
        if self.total_us is not None:
            return self.total_us
        return self.overlap * sum(step.predicted_us for step in self.steps)


class Foreseen(Record, frozen=True, kw_only=True):
    """One backend at one number of tokens: its predicted time with its 80% interval, and that time over the least one.

    It is `tied` if its interval meets that of the least, and not predicted for a `reason`. `sources` are those of its
    launches, `guard` says which bound raised the time. `error`, `worst_error` and `undecided` are in files of before
    there were intervals alone.
    """

    backend: str
    verdict: Standing
    predicted_us: PositiveTime | None = None
    ratio: Factor | None = None
    low_us: PositiveTime | None = None
    high_us: PositiveTime | None = None
    sources: tuple[Origin, ...] = ()
    extrapolated: bool = False
    steps: tuple[PredictedStep, ...] = ()
    guard: str | None = None
    error: float | None = None
    worst_error: float | None = None
    reason: str | None = None


class ForeseenPoint(Record, frozen=True, kw_only=True):
    """One number of tokens: what was assumed, on which device its rows were measured, and every backend of it.

    `least` and `efficiency` are None where no row could be predicted.
    """

    mode: Mode
    tokens: int
    measured_on: str
    efficiency: Efficiency | None
    least: str | None
    backends: tuple[Foreseen, ...]


class Foresight(Record, frozen=True, kw_only=True):
    """Predictions for one MLP on a card that is not here. It is no choice, and nothing runs by it."""

    schema: int
    kind: Literal["prediction"]
    model: Model
    tp: int
    spec: MLPSpec
    card: str
    peaks: Peaks
    points: tuple[ForeseenPoint, ...]
    notes: tuple[str, ...] = ()
