"""Predicts the fastest backend on a card that is not here, from rows of another card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlpfusion import backend as registry
from mlpfusion import device as devices
from mlpfusion import limits
from mlpfusion.errors import UsageError
from mlpfusion.records.prediction import SCHEMA, Foreseen, ForeseenPoint, Foresight
from mlpfusion.stages.choose import decide, rows
from mlpfusion.stages.choose import run as choose_run
from mlpfusion.stages.predict import run as predict
from mlpfusion.stages.predict import scaled
from mlpfusion.stages.predict.foreseen import against
from mlpfusion.stages.predict.shapes import steps
from mlpfusion.storage.files import alone

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from mlpfusion.records.choice import Model
    from mlpfusion.records.prediction import Predicted
    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.spec import Dtype, MLPSpec, Mode, Workload
    from mlpfusion.stages.profile import run


def foresee(
    model: str | os.PathLike[str] | Model | MLPSpec,
    card: str,
    *,
    tokens: Sequence[int] = choose_run.TOKENS,
    modes: Sequence[Mode] = ("inference",),
    tp: int = 1,
    dtype: Dtype | None = None,
    backends: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    rounds: int = choose_run.ROUNDS,
    time_limit_s: float = 600.0,
    fresh: bool = False,
    table: str | None = None,
    on_event: Callable[[run.Progress], None] | None = None,
) -> Foresight:
    """Every backend of every number of tokens on a known card, by its name among `device.KNOWN_CARDS`.

    `table` is a file of products measured on that card, which join the installed table.

    If `out` holds whole rows of all of them, whichever card they were measured on, those are taken; without `backends`
    the ones that they are of. Else they are measured on the GPU at hand, as `choose` does, and kept in `out`.

    Raises:
        UsageError: as of `choose`; the card is not known; there is neither a GPU nor whole rows; or no row of any
            number of tokens can be predicted.
    """
    limits.whole("rounds", rounds, limits.ROUNDS)
    limits.seconds("time_limit_s", time_limit_s)
    there = predict.card(card, table)
    asked, folder = choose_run.model_asked(model, dtype), None if out is None else Path(out)
    if asked.spec.dtype == "float32":
        raise UsageError("float32 has no peak among the known cards; valid: bfloat16, float16")
    names = None if backends is None else [registry.check_name(name) for name in backends]
    work = choose_run.workloads(asked, tokens, modes, tp)
    found = None if fresh else _whole(folder, work, names)
    if found is None:
        here = replace(devices.detect(), interpreted=False)
        if here.kind == "cpu":
            where = "" if folder is None else f" in {str(folder)!r}"
            raise UsageError(f"nothing to predict {card} from: no GPU is here to measure, and no whole rows are{where}")
        with alone(folder):
            found = choose_run.measure(
                work,
                registry.names() if names is None else names,
                here,
                folder=folder,
                rounds=rounds,
                time_limit_s=time_limit_s,
                fresh=fresh,
                on_event=on_event,
            )
    points = foresee_points(found, there)
    if all(point.least is None for point in points):
        raise UsageError(f"no row can be predicted for {card}: {_first_reason(points)}")
    return Foresight(
        schema=SCHEMA,
        kind="prediction",
        model=asked,
        tp=tp,
        spec=work[0].spec,
        card=card,
        peaks=there.peaks,
        points=points,
        notes=there.notes,
    )


def foresee_points(profiles: Sequence[Profile], card: predict.Card) -> tuple[ForeseenPoint, ...]:
    """Predictions for a card from profiles of one MLP; a backend wrong in one of them is predicted in none."""
    wrong = decide.disqualified(profiles)
    points = []
    # What fewer tokens take at least: by mode and backend.
    floors: dict[tuple[str, str], Predicted] = {}
    for profile in sorted(profiles, key=lambda each: each.workload.tokens):
        points.append(_point(profile, card, wrong, floors))
    order = [(profile.workload.mode, profile.workload.tokens) for profile in profiles]
    return tuple(sorted(points, key=lambda each: order.index((each.mode, each.tokens))))


def _whole(folder: Path | None, work: Sequence[Workload], names: Sequence[str] | None) -> list[Profile] | None:
    """The rows in a folder of these backends, or of those that are there; None if any of them is missing."""
    found = []
    for each in work:
        profile = rows.as_typed(rows.earlier(folder, each), names or ())
        if profile is None or not profile.complete:
            return None
        by_name = {row.backend: row for row in profile.rows}
        if names is not None and not by_name.keys() >= set(names):
            return None
        found.append(profile if names is None else replace(profile, rows=tuple(by_name[name] for name in names)))
    return found


def _point(
    profile: Profile, card: predict.Card, wrong: Mapping[str, str], floors: dict[tuple[str, str], Predicted]
) -> ForeseenPoint:
    refused = {row.backend: reason for row in profile.rows if (reason := _refusal(row, wrong)) is not None}
    # The efficiency is that of all rows: a kernel reaches what it reaches, whatever becomes of its result.
    assumed = scaled.efficiency(profile) or scaled.RECORDED
    fit = replace(profile, rows=tuple(row for row in profile.rows if row.backend not in refused))
    times = {each.backend: each for each in predict.predict(fit, card, assumed)} if fit.rows else {}
    mode = profile.workload.mode
    for backend, each in times.items():
        times[backend] = floors[mode, backend] = _raised(each, floors.get((mode, backend)))
    least = min(times.values(), key=lambda each: each.predicted_us, default=None)
    return ForeseenPoint(
        mode=mode,
        tokens=profile.workload.tokens,
        measured_on=profile.device.name,
        efficiency=assumed if times else None,
        least=None if least is None else least.backend,
        backends=tuple(
            Foreseen(backend=row.backend, verdict="not predicted", reason=refused[row.backend])
            if least is None or row.backend in refused
            else against(times[row.backend], least)
            for row in profile.rows
        ),
    )


def _raised(mine: Predicted, fewer: Predicted | None) -> Predicted:
    """A prediction, or that for fewer tokens where it would be faster than that."""
    if fewer is None or mine.predicted_us >= fewer.predicted_us:
        return mine
    return replace(
        mine, total_us=fewer.predicted_us, high_us=max(_high(mine), _high(fewer)), guard="no faster than fewer tokens"
    )


def _high(each: Predicted) -> float:
    return each.predicted_us if each.high_us is None else each.high_us


def _refusal(row: Row, wrong: Mapping[str, str]) -> str | None:
    """Why a row is not predicted, or None."""
    if row.backend in wrong:
        return wrong[row.backend]
    if row.status != "ok":
        return row.reason or row.status
    if row.emulated:
        return "ran in Triton's interpreter, which shows no launch"
    if row.traffic is None:
        return "it has no ledger of its launches"
    if not steps(row):
        return row.traffic.reasons.get("derived_bytes") or "its ledger has no launches"
    product = predict.incomplete(row)
    return None if product is None else f"how many operations {product} takes is not known"


def _first_reason(points: Sequence[ForeseenPoint]) -> str:
    said = (f"{each.backend}: {each.reason}" for point in points for each in point.backends if each.reason)
    return next(said, "there are no rows")
