"""Turns predictions of a profile's rows into the record that a file keeps: each against the least of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.records.choice import Model
from mlpfusion.records.prediction import SCHEMA, Foreseen, ForeseenPoint, Foresight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.prediction import Predicted, Standing
    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.stages.predict.run import Card


def foresight(profile: Profile, made: Sequence[Predicted], there: Card) -> Foresight:
    """The predictions `made` of a profile for one card, with why its other rows are not predicted."""
    work, spec = profile.workload, profile.workload.spec
    times = {each.backend: each for each in made}
    least = min(made, key=lambda each: each.predicted_us)
    point = ForeseenPoint(
        mode=work.mode,
        tokens=work.tokens,
        measured_on=profile.device.name,
        efficiency=least.efficiency,
        least=least.backend,
        backends=tuple(
            against(times[row.backend], least) if row.backend in times else _refused(row) for row in profile.rows
        ),
    )
    name = f"{spec.hidden_size}x{spec.intermediate_size}-{spec.activation}"
    return Foresight(
        schema=SCHEMA,
        kind="prediction",
        model=Model(name=name, source="the sizes of the profile", spec=spec),
        tp=1,
        spec=spec,
        card=there.name,
        peaks=there.peaks,
        points=(point,),
        notes=there.notes,
    )


def against(mine: Predicted, least: Predicted) -> Foreseen:
    """One prediction beside the least one: tied if their intervals have a time in common."""
    verdict: Standing = "least" if mine is least else "tied" if _meet(mine, least) else "slower"
    return Foreseen(
        backend=mine.backend,
        verdict=verdict,
        predicted_us=mine.predicted_us,
        ratio=mine.predicted_us / least.predicted_us,
        low_us=mine.low_us,
        high_us=mine.high_us,
        sources=tuple(dict.fromkeys(step.source for step in mine.steps)),
        extrapolated=any(step.extrapolated for step in mine.steps),
        steps=mine.steps,
        guard=mine.guard,
    )


def _meet(mine: Predicted, least: Predicted) -> bool:
    """Whether the intervals have a time in common; each is there for what was just predicted."""
    return mine.low_us is None or least.high_us is None or mine.low_us <= least.high_us


def _refused(row: Row) -> Foreseen:
    ran = row.status == "ok" and not row.emulated
    reason = "it has no ledger of its launches" if ran else row.reason or row.status
    return Foreseen(backend=row.backend, verdict="not predicted", reason=reason)
