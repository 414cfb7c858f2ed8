"""Predicts a launch on a card that is not here from its bytes and operations, the datasheets, and its time at hand.

A kernel takes its bytes over the card's bandwidth or its operations over the card's rate, whichever is longer, reaches
of that a share, and takes a launch besides, which no rate makes shorter. The share is the one that it reaches of the
datasheet of the card at hand; for elementwise kernels the geometric mean of that and of what such kernels reach there
in the median: half of what sets one kernel apart goes with it to the next card. The two that are published for an
A100, 89.4 µs for Inductor's act·mul and 92.8 for Liger's, are then met by 2 and 3%.
"""

from __future__ import annotations

from math import sqrt
from statistics import median
from typing import TYPE_CHECKING, Final

from mlpfusion.records.prediction import Efficiency
from mlpfusion.stages.predict.shapes import is_product, lacks_operations, steps

if TYPE_CHECKING:
    from mlpfusion.device import Peaks
    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.records.traffic import BoundBy, Step

# Medians over the 23 matrix products and 9 elementwise kernels of bench/results/h200-article.json.
RECORDED: Final = Efficiency(compute=0.689, memory=0.710, n=32, source="NVIDIA H200, bench/results/h200-article.json")

# What a launch takes that no rate explains: products, the time of the smallest kernels in the tables of five cards.
LAUNCH_US: Final = 2.0
# What the elementwise kernels of one row take on an H200, whose bytes are next to none: bench/results/h200-choose-*.
_MEMORY_LAUNCH_US: Final = 1.0
_SMALL: Final = 3.0  # launches: a shorter time says more of the launch than of the bandwidth

# Half the width of the 80% interval, in logarithms. A product's time on one of an A100, H100, H200 and B200, scaled to
# another of them, by rows of x: at most 0.39 to 256, 0.25 to 2048, 0.20 beyond (bench/results/predict.md). Elementwise
# kernels: assumed; the two published ones are met by 2 and 3%, which is too few to fit an interval to.
_PRODUCT_ERRORS: Final = ((256, 0.39), (2048, 0.25))
_LARGE_PRODUCT_ERROR: Final = 0.20
MEMORY_ERROR: Final = 0.15


def product_error(m: int) -> float:
    """Half the width of the 80% interval of a scaled product with m rows, in logarithms."""
    return next((error for most, error in _PRODUCT_ERRORS if m <= most), _LARGE_PRODUCT_ERROR)


def efficiency(profile: Profile) -> Efficiency | None:
    """The share of the datasheet that the launches of a profile reached; None where card or times are not known."""
    peaks = profile.device.peaks
    if peaks is None or profile.workload.spec.dtype == "float32":
        return None
    shares: dict[BoundBy, list[float]] = {"compute": [], "memory": []}
    for row in profile.rows:
        for step in steps(row):
            if step.time_us and not lacks_operations(step, row):
                limit, bound = limit_us(step, peaks)
                shares[bound].append(limit / step.time_us)
    if not all(shares.values()):
        return None
    counted = sum(len(found) for found in shares.values())
    return Efficiency(
        compute=median(shares["compute"]), memory=median(shares["memory"]), n=counted, source=profile.device.name
    )


def time_us(step: Step, row: Row, there: Peaks, here: Peaks | None, assumed: Efficiency) -> float:
    """µs of a launch on a card with the peaks `there`; `here` are those of the card that it was timed on, if known."""
    limit, bound = limit_us(step, there)
    product = is_product(step, row)
    launch = LAUNCH_US if product else _MEMORY_LAUNCH_US
    usual = assumed.compute if bound == "compute" else assumed.memory
    share = usual
    if here is not None and step.time_us and not lacks_operations(step, row) and step.time_us > _SMALL * launch:
        own = limit_us(step, here)[0] / (step.time_us - launch)
        share = own if product else sqrt(own * usual)
    return launch + limit / share


def limit_us(step: Step, peaks: Peaks) -> tuple[float, BoundBy]:
    """The least time that a card's peaks allow a launch, and which of them sets it."""
    memory, compute = step.bytes / peaks.bandwidth * 1e6, (step.flops or 0) / peaks.flops_16bit * 1e6
    return (compute, "compute") if compute > memory else (memory, "memory")
