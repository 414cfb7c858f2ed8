"""Predicts every row of a profile on a card that is not here, launch by launch, with an interval and its sources."""

from __future__ import annotations

from math import exp, hypot, log
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.device import KNOWN_CARDS
from mlpfusion.errors import UsageError
from mlpfusion.records.prediction import MeasuredProduct, Predicted, PredictedStep
from mlpfusion.stages.predict import scaled, sources
from mlpfusion.stages.predict.shapes import is_library_product, is_product, lacks_operations, shapes, steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.device import Peaks
    from mlpfusion.records.prediction import Efficiency
    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.records.traffic import Step
    from mlpfusion.spec import Workload
    from mlpfusion.stages.predict.products import Estimate, Products
    from mlpfusion.stages.predict.shapes import Shape

# The card of the public GeGLU tutorial, whose figures a prediction can be checked against.
REFERENCE_CARD: Final = "NVIDIA A100-SXM4-80GB"


class Card(NamedTuple):
    """A card to predict for: its peaks, its measured products if there are any, and what is to be said of those."""

    name: str
    peaks: Peaks
    products: Products | None
    notes: tuple[str, ...]


def peaks_of(card: str) -> Peaks:
    """The datasheet peaks of a known card; else a `UsageError` that lists them."""
    if card not in KNOWN_CARDS:
        raise UsageError(f"unknown card {card!r}; valid: {', '.join(KNOWN_CARDS)}")
    return KNOWN_CARDS[card]


def card(name: str, own: str | None = None) -> Card:
    """A known card with its table of measured products, if one is installed, and the products of a user's file `own`.

    Raises:
        UsageError: the card is not known; the file or the installed table is not as it should be.
    """
    peaks = peaks_of(name)
    table, rows = sources.installed(name), None if own is None else sources.own(own, name)
    lacking = None if table is not None else sources.missing(name)
    notes = [] if lacking is None else [lacking]
    if table is not None:
        notes.append(f"products: {len(table)} measured on this card, {table.source}")
    if rows is not None:
        notes.append(f"products of {rows.source}: {len(rows)}")
    if table is None and rows is None:
        return Card(name, peaks, None, tuple(notes))
    from mlpfusion.stages.predict.products import Products, roofline_us

    share = scaled.RECORDED.compute

    def by_datasheet(asked: NDArray[np.float64]) -> NDArray[np.float64]:
        return scaled.LAUNCH_US + roofline_us(asked, peaks) / share

    return Card(name, peaks, Products(peaks, table, rows, by_datasheet, scaled.product_error), tuple(notes))


def predict(profile: Profile, there: Card, found: Efficiency | None = None) -> tuple[Predicted, ...]:
    """Every row of a profile whose launches are known, on another card.

    `found` is the efficiency to assume; without it that of the profile itself, or else `scaled.RECORDED`.

    Raises:
        UsageError: the datasheet has no rate for the profile's dtype, or no row has a ledger.
    """
    if profile.workload.spec.dtype == "float32":
        raise UsageError("float32 has no peak among the known cards; valid: bfloat16, float16")
    rows = [row for row in profile.rows if steps(row) and not row.emulated]
    if not rows:
        raise UsageError("no row of this profile has a ledger of its launches; profile again to get one")
    assumed = found or scaled.efficiency(profile) or scaled.RECORDED
    return tuple(_predicted(row, profile, there, assumed) for row in rows)


def incomplete(row: Row) -> str | None:
    """The operator or kernel of a row that is a matrix product of unknown operations, if there is one."""
    return next((step.op for step in steps(row) if lacks_operations(step, row)), None)


class _Launch(NamedTuple):
    """A predicted launch with the two errors of its time, in logarithms: its own, and one that others share."""

    step: PredictedStep
    own: float
    common: float


def _predicted(row: Row, profile: Profile, there: Card, assumed: Efficiency) -> Predicted:
    made = [_launch(step, row, profile, there, assumed) for step in steps(row)]
    overlap = _overlap(row)
    total = overlap * sum(each.step.predicted_us for each in made)
    width = _width(made)
    return Predicted(
        backend=row.backend,
        card=there.name,
        peaks=there.peaks,
        efficiency=assumed,
        steps=tuple(each.step for each in made),
        low_us=total * exp(-width),
        high_us=total * exp(width),
        overlap=overlap,
        incomplete=incomplete(row),
    )


def _launch(step: Step, row: Row, profile: Profile, there: Card, assumed: Efficiency) -> _Launch:
    here, (limit, bound) = profile.device.peaks, scaled.limit_us(step, there.peaks)
    estimate = None
    if there.products is not None and is_library_product(step, row):
        estimate = _estimate(shapes(step, profile.workload), there.products)
    if estimate is not None:
        us, own, common = estimate.us, estimate.own, estimate.common
    else:
        us, common = scaled.time_us(step, row, there.peaks, here, assumed), 0.0
        own = scaled.product_error(profile.workload.tokens) if is_product(step, row) else scaled.MEMORY_ERROR
    error = hypot(own, common)
    exact = estimate is not None and any(_is_of(near, profile.workload, step) for near in estimate.nearest[:1])
    least, guard = _least(step, row, there, here, limit, measured=exact)
    high = max(us * exp(error), least)
    low, us, guard = us * exp(-error), max(us, least), guard if us < least else None
    made = PredictedStep(
        op=step.op,
        role=step.role,
        predicted_us=us,
        bound=bound,
        low_us=min(max(low, limit), us),
        high_us=high,
        source="scaled" if estimate is None else "measured table",
        nearest=() if estimate is None else tuple(MeasuredProduct(**near._asdict()) for near in estimate.nearest),
        extrapolated=estimate is not None and estimate.extrapolated,
        guard=guard,
    )
    return _Launch(made, own, common)


def _estimate(asked: Sequence[Shape], products: Products) -> Estimate | None:
    """The estimate of one shape; of several that a launch can have, their geometric mean, as wrong as they differ."""
    found = [products.estimate(*shape) for shape in asked]
    if len(found) < 2:
        return found[0] if found else None
    mean = exp(sum(log(each.us) for each in found) / len(found))
    apart = max(abs(log(each.us / mean)) + each.own for each in found)
    return found[0]._replace(us=mean, own=apart, extrapolated=any(each.extrapolated for each in found))


def _least(
    step: Step, row: Row, there: Card, here: Peaks | None, limit: float, *, measured: bool
) -> tuple[float, str | None]:
    """The least time that a prediction may say, and why: the roofline, or the time on a card that is better in both."""
    if (
        here is not None
        and step.time_us
        and step.time_us > limit
        and not measured
        and not lacks_operations(step, row)
        and here.flops_16bit >= there.peaks.flops_16bit
        and here.bandwidth >= there.peaks.bandwidth
    ):
        return step.time_us, "no faster than on the card at hand, which is better in both peaks"
    return limit, "no faster than the roofline"


def _is_of(near: object, workload: Workload, step: Step) -> bool:
    return any(tuple(getattr(near, each) for each in ("m", "n", "k")) == shape for shape in shapes(step, workload))


def _overlap(row: Row) -> float:
    """What the kernels of a call took together over the sum of their times; 1 where either is not known."""
    clock = None if row.clocks is None else row.clocks.kernel_us
    times = [kernel.time_us for kernel in row.kernels]
    if clock is None or not times or any(each is None for each in times):
        return 1.0
    total = sum(each for each in times if each is not None)
    # A union above the sum is the noise of two medians.
    return min(clock.median / total, 1.0) if total else 1.0


def _width(made: Sequence[_Launch]) -> float:
    """Half the width of a call's interval in logarithms.

    Launches that rest on the same products err together, and so do all of a table by its common error.
    """
    alike: dict[object, float] = {}
    common = 0.0
    for index, (step, own, shared) in enumerate(made):
        key: object = step.nearest or (step.source, step.role, index)
        alike[key] = alike.get(key, 0.0) + own * step.predicted_us
        common += shared * step.predicted_us
    total = sum(each.step.predicted_us for each in made)
    return hypot(common, *alike.values()) / total if total else 0.0
