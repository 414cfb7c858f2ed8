"""Draws every launch under the card's ceilings: the rates that were measured on it, and those of its datasheet."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.report.figures.drawing import axes, style
from mlpfusion.report.figures.drawing.names import distinct
from mlpfusion.report.figures.figure import Figure, Key
from mlpfusion.report.figures.reading import shapes, words
from mlpfusion.report.profile.data_flow import label
from mlpfusion.traffic import roofline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.traffic import Step
    from mlpfusion.report.figures.figure import Options
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.storage.gathered import Gathered

_COLUMNS: Final = (
    "backend", "shape", "launch", "kernel", "flops", "bytes", "us", "flops_per_byte", "tflops", "gb_per_s", "file",
)  # fmt: skip
_HEIGHT: Final = {84: 200, 178: 310}
_LEFT: Final = 0.5  # of the lowest intensity: where launches without counted operations are drawn
_WIDEST: Final = 1e9  # of intensities that are drawn


class _Launch(NamedTuple):
    """One launch with its time."""

    shape: Shape
    backend: str
    number: int
    step: Step
    us: float


class _Ceilings(NamedTuple):
    """Two rates, bytes/s and FLOP/s, and where they are from."""

    source: str
    bandwidth: float
    flops: float


def make(files: Sequence[Gathered], options: Options) -> Figure:
    """The figure `roofline`.

    Raises:
        UsageError: no launch has bytes and a time, no ceiling is known, or the files are of several cards.
    """
    every = [shape for shape in shapes.of(files) if any(row.traffic and row.traffic.steps for row in shape.rows)]
    launches = [launch for shape in every for launch in _launches(shape)]
    if not launches:
        raise UsageError(f"figure 'roofline' needs launches with bytes and times; {words.lacking(shapes.of(files))}")
    cards = {shape.device.name for shape in every}
    if len(cards) > 1:
        raise UsageError(
            f"figure 'roofline' draws one card; the files hold {words.listed(map(words.caption_name, cards))}"
        )
    ceilings = _ceilings(every)
    if not ceilings:
        raise UsageError(
            f"figure 'roofline' needs ceilings: {words.sources(every)} has none measured, and no datasheet of "
            f"{words.caption_name(every[0].device.name)} is known"
        )
    names = distinct((launch.backend for launch in launches), options.width)
    texts = dict(zip(map(id, every), words.labels(every, options.width), strict=True))
    counted = [_intensity(launch.step) for launch in launches if launch.step.flops]
    lowest = _LEFT * min([*counted, *(one.flops / one.bandwidth for one in ceilings)])
    title = "Launches under the card's ceilings"
    caption = (
        f"{title}: FLOP/s over FLOP per byte of device memory, medians of kernel times in the trace. "
        f"{_said(ceilings)} A launch whose operations are not counted is at the left end, as far below the memory "
        f"ceilings as its bytes/s are. {words.measured(every)}"
    )
    return Figure(
        name="roofline",
        title=title,
        caption=caption,
        spec=_spec(launches, ceilings, names, lowest, options.width),
        columns=_COLUMNS,
        rows=tuple(_row(launch, texts[id(launch.shape)]) for launch in launches),
        notes=_absent(every),
        keys=tuple({(each.backend, id(each.shape)): _key(each, texts) for each in launches}.values()),
        names={shown: name for name, shown in names.items()},
    )


def _launches(shape: Shape) -> list[_Launch]:
    return [
        _Launch(shape, row.backend, number, step, step.time_us)
        for row in shape.rows
        if row.status == "ok" and not row.emulated and row.traffic is not None
        for number, step in enumerate(row.traffic.steps, 1)
        if step.time_us and step.bytes and _intensity(step) < _WIDEST
    ]


def _intensity(step: Step) -> float:
    return (step.flops or 0) / step.bytes


def _ceilings(every: Sequence[Shape]) -> list[_Ceilings]:
    """The measured rates, of several measurements the highest, and the datasheet's."""
    found = []
    measured = [shape.ceilings for shape in every if shape.ceilings is not None]
    if measured:
        copies = max(copy.bytes_per_second for one in measured for copy in one.copies)
        found.append(_Ceilings("measured", copies, max(roofline.product_rate(one) for one in measured)))
    peaks = every[0].device.peaks
    if peaks is not None and all(shape.workload.spec.itemsize == 2 for shape in every):
        found.append(_Ceilings("datasheet", peaks.bandwidth, peaks.flops_16bit))
    return found


def _said(ceilings: Sequence[_Ceilings]) -> str:
    return " ".join(
        f"{one.source.capitalize()}: {one.bandwidth / 1e9:.0f} GB/s, {one.flops / 1e12:.0f} TFLOP/s."
        for one in ceilings
    )


def _absent(every: Sequence[Shape]) -> tuple[str, ...]:
    said: dict[str, None] = {}
    for shape in every:
        for row in shape.rows:
            steps = row.traffic.steps if row.traffic is not None else ()
            if row.emulated:
                said[f"{row.backend}: emulated, which is not ranked with what was measured"] = None
            elif not steps:
                said[words.note(f"{row.backend}: {row.reason or 'its launches are not known'}")] = None
            elif not all(step.time_us and step.bytes for step in steps):
                said[f"{row.backend}: a launch without bytes or a time"] = None
    return tuple(said)


def _key(launch: _Launch, texts: dict[int, str]) -> Key:
    return Key("", launch.backend, texts[id(launch.shape)], launch.shape)


def _row(launch: _Launch, text: str) -> tuple[str | int | float | None, ...]:
    step, us = launch.step, launch.us
    rate = step.flops / us / 1e6 if step.flops else None
    intensity = _intensity(step) if step.flops else None
    numbers = (step.flops, step.bytes, us, intensity, rate, step.bytes / us / 1e3)
    return launch.backend, text, launch.number, step.role or label(step), *numbers, launch.shape.path


def _spec(
    launches: Sequence[_Launch], ceilings: Sequence[_Ceilings], names: dict[str, str], lowest: float, width: int
) -> dict[str, Any]:
    points: list[dict[str, Any]] = [
        {
            "backend": names[launch.backend],
            "tokens": launch.shape.workload.tokens,
            "mode": launch.shape.workload.mode,
            "intensity": (_intensity(launch.step) if launch.step.flops else lowest),
            "rate": (launch.step.flops or lowest * launch.step.bytes) / launch.us / 1e6,
        }
        for launch in launches
    ]
    first = lowest * 0.8
    last = 2 * max([*(point["intensity"] for point in points), *(one.flops / one.bandwidth for one in ceilings)])
    lines: list[dict[str, Any]] = [
        {"source": one.source, "intensity": at, "rate": min(one.flops, one.bandwidth * at) / 1e12}
        for one in ceilings
        for at in (first, one.flops / one.bandwidth, last)
    ]
    rates = [each["rate"] for each in itertools.chain(points, lines)]
    x = {
        "field": "intensity",
        "type": "quantitative",
        "title": "FLOP per byte (log scale)",
        **axes.log(first, last, margin=0),
    }
    x["axis"]["grid"] = False
    y = {
        "field": "rate",
        "type": "quantitative",
        "title": "TFLOP/s (log scale)",
        **axes.log(min(rates), max(rates), margin=0.08),
    }
    looks = style.look_scales(names)
    legend = style.legend(list(names.values()), width, ["10000"])

    def by(what: str) -> dict[str, Any]:
        return {"field": "backend", "type": "nominal", "scale": looks[what], "legend": legend}

    dashes = {"domain": ["measured", "datasheet"], "range": [[1, 0], [5, 3]]}
    return style.spec(
        width,
        _HEIGHT[width],
        "every launch under the measured and datasheet ceilings of the card",
        layer=[
            {
                "data": {"values": lines},
                "mark": {"type": "line", "strokeWidth": 1.2, "color": style.INK},
                "encoding": {
                    "x": x,
                    "y": y,
                    "strokeDash": {"field": "source", "type": "nominal", "scale": dashes, "legend": None},
                },
            },
            {
                "data": {"values": [{**line, "text": line["source"]} for line in lines[2::3]]},
                "mark": {"type": "text", "align": "right", "baseline": "bottom", "dx": -2, "dy": -2},
                "encoding": {"x": x, "y": y, "text": {"field": "text"}},
            },
            {
                "data": {"values": points},
                "mark": {"type": "point", "opacity": 0.85, "filled": True, "size": 34},
                "encoding": {"x": x, "y": y, "color": by("color"), "shape": by("shape")},
            },
        ],
    )
