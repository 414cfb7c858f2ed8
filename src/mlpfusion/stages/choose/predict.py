"""Predicts a call's time on a card that is not here from its ledger and the card's datasheet.

A kernel takes its bytes over the card's bandwidth or its operations over the card's rate, whichever is longer, and
reaches of that the share that kernels of its kind reach of the datasheet of a card at hand. What a datasheet does not
say (clocks under load, cache sizes, how well a library knows a card) is left out; the error that the same rule makes on
the card at hand says how much that is.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from mlpfusion.device import KNOWN_CARDS
from mlpfusion.errors import UsageError
from mlpfusion.records.prediction import Efficiency, Predicted, PredictedStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.device import Peaks
    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.records.traffic import BoundBy, Step

# The card of the public GeGLU tutorial, whose figures a prediction can be checked against.
REFERENCE_CARD: Final = "NVIDIA A100-SXM4-80GB"


# Medians over the 23 matrix products and 9 elementwise kernels of bench/results/h200-article.json.
RECORDED: Final = Efficiency(compute=0.689, memory=0.710, n=32, source="NVIDIA H200, bench/results/h200-article.json")


def peaks_of(card: str) -> Peaks:
    """The datasheet peaks of a known card; else a `UsageError` that lists them."""
    if card not in KNOWN_CARDS:
        raise UsageError(f"unknown card {card!r}; valid: {', '.join(KNOWN_CARDS)}")
    return KNOWN_CARDS[card]


def efficiency(profile: Profile) -> Efficiency | None:
    """The share of the datasheet that the launches of a profile reached; None where card or times are not known."""
    peaks = profile.device.peaks
    if peaks is None or profile.workload.spec.dtype == "float32":
        return None
    shares: dict[BoundBy, list[float]] = {"compute": [], "memory": []}
    for row in profile.rows:
        for step in _steps(row):
            if step.time_us and not _lacks_operations(step, row):
                limit, bound = _limit_us(step, peaks)
                shares[bound].append(limit / step.time_us)
    if not all(shares.values()):
        return None
    counted = sum(len(found) for found in shares.values())
    return Efficiency(
        compute=median(shares["compute"]), memory=median(shares["memory"]), n=counted, source=profile.device.name
    )


def predict(profile: Profile, card: str = REFERENCE_CARD, found: Efficiency | None = None) -> tuple[Predicted, ...]:
    """Every row of a profile whose launches are known, on another card.

    `found` is the efficiency to assume; without it that of the profile itself, or else `RECORDED`.

    Raises:
        UsageError: the card is not known, its datasheet has no rate for the profile's dtype, or no row has a ledger.
    """
    peaks = peaks_of(card)
    if profile.workload.spec.dtype == "float32":
        raise UsageError("float32 has no peak among the known cards; valid: bfloat16, float16")
    rows = [row for row in profile.rows if _steps(row) and not row.emulated]
    if not rows:
        raise UsageError("no row of this profile has a ledger of its launches; profile again to get one")
    assumed = found or efficiency(profile) or RECORDED
    return tuple(_predicted(row, card, peaks, assumed, profile.device.peaks) for row in rows)


def predict_steps(steps: Sequence[Step], peaks: Peaks, assumed: Efficiency) -> tuple[PredictedStep, ...]:
    """Each launch on a card with these peaks."""
    found = []
    for step in steps:
        limit, bound = _limit_us(step, peaks)
        share = assumed.compute if bound == "compute" else assumed.memory
        found.append(PredictedStep(op=step.op, role=step.role, predicted_us=limit / share, bound=bound))
    return tuple(found)


def _predicted(row: Row, card: str, peaks: Peaks, assumed: Efficiency, here: Peaks | None) -> Predicted:
    steps = _steps(row)
    errors = []
    if here is not None:
        for step, again in zip(steps, predict_steps(steps, here, assumed), strict=True):
            if step.time_us and not _lacks_operations(step, row):
                errors.append(abs(again.predicted_us / step.time_us - 1))
    return Predicted(
        backend=row.backend,
        card=card,
        peaks=peaks,
        efficiency=assumed,
        steps=predict_steps(steps, peaks, assumed),
        error=median(errors) if errors else None,
        worst_error=max(errors, default=None),
        incomplete=incomplete(row),
    )


def incomplete(row: Row) -> str | None:
    """The operator or kernel of a row that is a matrix product of unknown operations, if there is one."""
    return next((step.op for step in _steps(row) if _lacks_operations(step, row)), None)


def _lacks_operations(step: Step, row: Row) -> bool:
    """Whether a kernel's name says that a launch is a matrix product, and nothing says how large."""
    return step.flops is None and any(row.kernels[index].decoded.kind == "gemm" for index in step.kernels)


def _steps(row: Row) -> tuple[Step, ...]:
    return () if row.traffic is None else row.traffic.steps


def _limit_us(step: Step, peaks: Peaks) -> tuple[float, BoundBy]:
    memory, compute = step.bytes / peaks.bandwidth * 1e6, (step.flops or 0) / peaks.flops_16bit * 1e6
    return (compute, "compute") if compute > memory else (memory, "memory")
