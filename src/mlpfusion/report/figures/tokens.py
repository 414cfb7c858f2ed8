"""Draws time or TFLOP/s over the number of tokens: a panel per MLP, a line per backend, a band of percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.report.figures.drawing import axes, style
from mlpfusion.report.figures.drawing.names import distinct
from mlpfusion.report.figures.figure import Figure
from mlpfusion.report.figures.reading import shapes, timed, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.figures.figure import Options, Value
    from mlpfusion.report.figures.reading.timed import Timed
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.storage.gathered import Gathered

_COLUMNS: Final = ("mlp", "backend", "tokens", "clock", "us", "us_p20", "us_p80", "tflops", "n", "file")
_HEIGHT: Final = {84: 190, 178: 300}
_PANEL: Final = {84: 130, 178: 170}  # of each where there are several


class _At(NamedTuple):
    """One backend at one number of tokens; the ends are None where there are too few samples for percentiles."""

    found: Timed
    middle: float
    low: float | None
    high: float | None


def make(files: Sequence[Gathered], options: Options) -> Figure:
    """The figure `tokens`.

    Raises:
        UsageError: the files hold no times at two numbers of tokens, or several modes or cards.
    """
    every = shapes.of(files)
    clock, found = timed.pick(every, options.clock)
    tokens = sorted({each.shape.workload.tokens for each in found})
    if len(tokens) < 2:
        has = f"{words.sources(every)} has {tokens[0]}" if tokens else words.lacking(every)
        raise UsageError(f"figure 'tokens' needs times at two or more numbers of tokens; {has}")
    _check_one(found)
    names = distinct((each.row.backend for each in found), options.width)
    at = [_at(each, options.value) for each in found]
    rate = options.value == "tflops"
    title = "TFLOP/s over tokens" if rate else "Time over tokens"
    caption = (
        f"{title} by {clock} ({words.CLOCKS[clock]}): medians, bands from the 20th to the 80th percentile, both axes "
        f"logarithmic{'; the operations of the three products' if rate else ''}. "
        f"{words.measured([each.shape for each in found], [each.clock for each in found])}"
    )
    values: dict[str, list[dict[str, Any]]] = {}
    for each in at:
        value = {
            "backend": names[each.found.row.backend],
            "tokens": each.found.shape.workload.tokens,
            "mode": each.found.shape.workload.mode,
            "value": each.middle,
            **({} if each.low is None else {"low": each.low, "high": each.high}),
        }
        values.setdefault(_mlp(each.found.shape), []).append(value)
    table = tuple(
        (
            _mlp(each.shape),
            each.row.backend,
            each.shape.workload.tokens,
            clock,
            each.clock.median,
            each.clock.p20,
            each.clock.p80,
            _tflops(each.shape, each.clock.median),
            each.clock.n,
            each.shape.path,
        )
        for each in found
    )
    return Figure(
        name="tokens",
        title=title,
        caption=caption,
        spec=_spec(values, names, options),
        columns=_COLUMNS,
        rows=table,
        notes=timed.absent(every, clock),
        names={shown: name for name, shown in names.items()},
    )


def _check_one(found: Sequence[Timed]) -> None:
    """Raise a UsageError unless all times are of one mode and card, each number of tokens of an MLP once."""
    kinds: dict[str, list[str]] = {
        "mode": [each.shape.workload.mode for each in found],
        "card": [each.shape.device.name for each in found],
    }
    for what, values in kinds.items():
        if len(set(values)) > 1:
            several = words.listed(map(words.caption_name, values), 4)
            raise UsageError(f"figure 'tokens' draws one {what}; the files hold {several}: name files of one")
    seen: dict[tuple[str, str, int], str] = {}
    for each in found:
        other = seen.setdefault((_mlp(each.shape), each.row.backend, each.shape.workload.tokens), each.shape.path)
        if other != each.shape.path:
            raise UsageError(
                f"{other!r} and {each.shape.path!r} both have {each.row.backend} at {each.shape.workload.tokens} "
                "tokens; name one"
            )


def _mlp(shape: Shape) -> str:
    """What the MLP is called."""
    return shape.model or words.mlp(shape.workload.spec)


def _at(each: Timed, value: Value) -> _At:
    clock = each.clock
    if value == "time":
        return _At(each, clock.median, clock.p20, clock.p80)
    low, high = (None if time is None else _tflops(each.shape, time) for time in (clock.p80, clock.p20))
    return _At(each, _tflops(each.shape, clock.median), low, high)


def _tflops(shape: Shape, us: float) -> float:
    return shape.workload.flops / us / 1e6


def _spec(values: dict[str, list[dict[str, Any]]], names: dict[str, str], options: Options) -> dict[str, Any]:
    said = "time or rate of each backend over the number of tokens"
    width = options.width
    if len(values) == 1:
        return style.spec(width, _HEIGHT[width], said, **_panel(next(iter(values.values())), names, options))
    called = distinct(values, width)
    views = [
        {"title": style.panel_title(called[mlp], width), "height": _PANEL[width], **_panel(each, names, options)}
        for mlp, each in values.items()
    ]
    return style.panels(width, views, said)


def _panel(values: list[dict[str, Any]], names: dict[str, str], options: Options) -> dict[str, Any]:
    """The data and layers of one MLP."""
    tokens = sorted({each["tokens"] for each in values})
    looks = style.look_scales(names)
    ends = [end for each in values for end in (each["value"], each.get("low"), each.get("high")) if end is not None]
    x = {
        "field": "tokens",
        "type": "quantitative",
        "title": "tokens (log scale)",
        **axes.log(min(tokens), max(tokens), margin=0.02),
    }
    x["axis"] = {"values": tokens, "format": "d", "grid": False, "labelOverlap": "greedy"}
    y = {
        "field": "value",
        "type": "quantitative",
        "title": "TFLOP/s (log scale)" if options.value == "tflops" else "µs (log scale)",
        **axes.log(min(ends), max(ends)),
    }
    legend = style.legend(list(names.values()), options.width, ["10000"], symbolSize=60, symbolStrokeWidth=0)

    def by(what: str) -> dict[str, Any]:
        return {"field": "backend", "type": "nominal", "scale": looks[what], "legend": legend}

    banded = [each for each in values if "low" in each]
    return {
        "data": {"values": values},
        "layer": [
            {
                "data": {"values": banded},
                "mark": {"type": "area", "opacity": 0.15, "aria": False},
                "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": by("color")},
            },
            {
                "mark": {"type": "line", "strokeWidth": 1.3},
                "encoding": {"x": x, "y": y, "color": by("color"), "strokeDash": {**by("strokeDash"), "legend": None}},
            },
            {
                "mark": {"type": "point", "opacity": 1, "filled": True, "size": 34},
                "encoding": {"x": x, "y": y, "color": by("color"), "shape": by("shape")},
            },
        ],
    }
