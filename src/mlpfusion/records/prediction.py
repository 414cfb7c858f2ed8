"""Records of a prediction: a call's time on a card that is not here, and the fastest backend on it."""

from __future__ import annotations

from typing import Final, Literal

from mlpfusion.device import Peaks
from mlpfusion.records.base import Record
from mlpfusion.records.choice import Model
from mlpfusion.records.traffic import BoundBy, Role
from mlpfusion.spec import MLPSpec, Mode

SCHEMA: Final = 1

Standing = Literal["least", "tied", "slower", "undecided", "not predicted"]


class Efficiency(Record, frozen=True, kw_only=True):
    """The share of a datasheet's rates that kernels reach: medians over the kernels that each rate bounds.

    `n` is how many kernels that are; `source` where they were measured.
    """

    compute: float
    memory: float
    n: int
    source: str


class PredictedStep(Record, frozen=True, kw_only=True):
    """One launch: its predicted µs and what bounds it."""

    op: str
    role: Role | None
    predicted_us: float
    bound: BoundBy


class Predicted(Record, frozen=True, kw_only=True):
    """One backend's call on another card. Nothing in it was measured there.

    `error` is the median, `worst_error` the largest relative error that the same rule makes over this backend's own
    launches on the card at hand; None where their times are not known. `incomplete` names a matrix product whose
    operations are not known: the call takes at least what is predicted.
    """

    backend: str
    card: str
    peaks: Peaks
    efficiency: Efficiency
    steps: tuple[PredictedStep, ...]
    error: float | None = None
    worst_error: float | None = None
    incomplete: str | None = None

    @property
    def predicted_us(self) -> float:
        """The launches one after the other, without the time between them."""
        return sum(step.predicted_us for step in self.steps)


class Foreseen(Record, frozen=True, kw_only=True):
    """One backend at one number of tokens: its predicted time, that over the least one, and the rule's errors.

    `error` and `worst_error` are as in `Predicted`. It is `tied` if its time differs from the least by less than the
    larger of both backends' `error`, `undecided` where one of these is not known, and not predicted for a `reason`.
    """

    backend: str
    verdict: Standing
    predicted_us: float | None = None
    ratio: float | None = None
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
