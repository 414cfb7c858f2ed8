"""Chooses where an axis begins, ends and has its ticks, and shades every other group of rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from mlpfusion.errors import UsageError
from mlpfusion.report.figures.drawing import style

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_ROWS: Final = 400
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_BAND: Final = "#f2f2f2"


def log(low: float, high: float, *, ticks: int = 6, margin: float = 0.04) -> dict[str, Any]:
    """Scale and axis of a logarithmic channel from `low` to `high`, both above 0, with about `ticks` round ticks."""
    room = margin * max(math.log(high / low), 0.05)
    first, last = low * math.exp(-room), high * math.exp(room)
    scale = {"type": "log", "domain": [first, last], "nice": False}
    return {"scale": scale, "axis": _axis(log_ticks(first, last, ticks))}


def linear(low: float, high: float, *, ticks: int = 6) -> dict[str, Any]:
    """Scale and axis of a linear channel from `low` to at least `high`, which is above it."""
    step = _step((high - low) / ticks)
    first, last = math.floor(low / step), math.floor(high / step)
    domain = [low, high + 0.04 * (high - low)]
    return {
        "scale": {"type": "linear", "domain": domain, "nice": False},
        "axis": _axis([round(step * count, 10) for count in range(first, last + 1)]),
    }


def _axis(values: Sequence[float]) -> dict[str, Any]:
    return {"values": list(values), "format": "~s" if max(values, default=0) >= 1e5 else "~r", "zindex": 0}


def log_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Round numbers from `low` to `high`: steps of one size where that is narrow, else 1, 2 and 5 or powers of ten."""
    if high / low < 5:
        step = _step((high - low) / most)
        return tuple(round(step * count, 10) for count in range(math.ceil(low / step), math.floor(high / step) + 1))
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
        kept = [value for value in found if low <= value <= high]
        if len(kept) <= max(most, 2):
            return tuple(kept)
    every = math.ceil(len(kept) / most)
    return tuple(kept[::every])


def _step(least: float) -> float:
    """The first of 1, 2, 2.5, 5 times a power of ten that is at least this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * (1 - 1e-9))


def rows(
    labels: Sequence[str], groups: Sequence[int], figure: str, width: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The channel of one row per label, from the field `row`, and a layer that shades every other group of rows.

    Raises:
        UsageError: there are more rows than anybody reads.
    """
    if len(labels) > MOST_ROWS:
        raise UsageError(f"figure {figure!r} would have {len(labels)} rows; at most {MOST_ROWS}: name fewer files")
    channel = {
        "field": "row",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(labels)},
        "axis": {"ticks": False, "domain": False, "grid": True, "zindex": 0, **style.label_limit(labels, width)},
    }
    odd = [{"row": label} for label, group in zip(labels, groups, strict=True) if group % 2]
    band = {
        "data": {"values": odd},
        "mark": {"type": "rect", "color": _BAND, "aria": False},
        "encoding": {"y": channel, "x": {"value": 0}, "x2": {"value": "width"}},
    }
    return channel, [band] if odd else []


def line(value: float, **more: Any) -> dict[str, Any]:
    """A layer with one line across all rows at a value; with the rows of others it would be drawn as often."""
    return {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "strokeWidth": 1, "color": style.INK, **more},
        "encoding": {"x": {"datum": value, "type": "quantitative"}},
    }
