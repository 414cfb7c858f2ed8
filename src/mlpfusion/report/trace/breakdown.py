"""Says in a few lines where the time of a call went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.breakdown import Breakdown, Category, Split

SHOWN: Final[dict[Category, str]] = {"gemm": "GEMM"}
_SMALL: Final = 0.005  # a share that would be shown as 0%


def breakdown_lines(breakdown: Breakdown) -> Iterable[tuple[str, str]]:
    """The lines of a page's header, each with its label."""
    if breakdown.categories and breakdown.kernel_us:
        yield "time", _categories(breakdown)
    if breakdown.split is not None and breakdown.split.communication_us + breakdown.split.both_us > 0:
        yield "step", _split(breakdown.split)


def _categories(breakdown: Breakdown) -> str:
    """`GEMM 72%, elementwise 28%, copies below 0.5% of 234 µs`."""
    shown = [f"{SHOWN.get(one.category, one.category)} {_percent(one.share)}" for one in breakdown.categories]
    more = ", a sum of kernels of which some ran at the same time" if breakdown.overlapping else ""
    return f"{', '.join(shown)} of {units.plain(breakdown.kernel_us)} µs{more}"


def _split(split: Split) -> str:
    of = split.length_us or 1.0
    parts = (
        (split.compute_us, "compute"),
        (split.both_us, "compute and communication at once"),
        (split.communication_us, "communication alone"),
        (split.idle_us, "idle"),
    )
    return ", ".join(f"{_percent(us / of)} {what}" for us, what in parts) + f" of {units.plain(of)} µs"


def _percent(share: float) -> str:
    return "below 0.5%" if 0 < share < _SMALL else f"{share:.0%}"
