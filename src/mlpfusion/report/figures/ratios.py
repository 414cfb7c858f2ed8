"""Draws the speedup of each backend over a baseline with its interval: a forest plot, one row per backend and shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mlpfusion import stats
from mlpfusion.errors import UsageError
from mlpfusion.report import speedup
from mlpfusion.report.figures.drawing import axes, style
from mlpfusion.report.figures.figure import Figure
from mlpfusion.report.figures.reading import rows as rows_of
from mlpfusion.report.figures.reading import shapes, timed, words
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Ratio
    from mlpfusion.report.figures.figure import Options
    from mlpfusion.report.figures.reading.rows import Labelled
    from mlpfusion.report.figures.reading.timed import Timed
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.speedup import Speedup
    from mlpfusion.storage.gathered import Gathered

_COLUMNS = ("backend", "shape", "clock", "speedup", "low", "high", "confidence", "n", "certain", "file")
_ROW = 15  # pixels of one row


class _Judged(NamedTuple):
    """One row of the figure: the ratio of its times as it was judged, and as it is shown."""

    found: Timed
    ratio: Ratio
    shown: Speedup


def make(files: Sequence[Gathered], options: Options) -> Figure:
    """The figure `ratios`.

    Raises:
        UsageError: no row has a ratio to the baseline with an interval.
    """
    every = shapes.of(files)
    clock, rows = _judged(every, options)
    found = timed.pick(every, clock)[1]
    known = rows_of.label([(each.shape, each.row) for each in found], options.width)
    places = {(id(each.shape), each.row.backend): place for place, each in enumerate(found)}
    labelled = known.only([places[id(row.found.shape), row.found.row.backend] for row in rows])
    title = f"Speedup over {words.caption_name(options.baseline)}"
    caption = (
        f"{title} by {clock} ({words.CLOCKS[clock]}): its time / the backend's, median of paired rounds with the "
        f"interval of {rows[0].ratio.confidence:.0%} confidence; right of 1 is faster, and a mark is open where the "
        f"interval reaches 1. {words.measured(labelled.shapes, [row.found.clock for row in rows])}"
    )
    values = [
        {
            "row": label,
            "backend": labelled.names[row.found.row.backend],
            "ratio": row.shown.median,
            "low": row.shown.low,
            "high": row.shown.high,
            "certain": row.shown.certain,
        }
        for label, row in zip(labelled.labels, rows, strict=True)
    ]
    table = tuple(
        (
            row.found.row.backend,
            text,
            clock,
            *row.shown,
            row.ratio.confidence,
            row.ratio.n,
            row.shown.certain,
            row.found.shape.path,
        )
        for text, row in zip(labelled.texts, rows, strict=True)
    )
    return Figure(
        name="ratios",
        title=title,
        caption=caption,
        spec=_spec(values, labelled, options.width),
        columns=_COLUMNS,
        rows=table,
        notes=timed.absent(every, clock),
        keys=known.keys,
        names=known.backends,
    )


def _judged(every: Sequence[Shape], options: Options) -> tuple[ClockName, list[_Judged]]:
    """The clock by which most rows have a ratio to the baseline, and these rows."""
    found = {name: _by(every, name, options.baseline) for name in ((options.clock,) if options.clock else CLOCKS)}
    clock = max(found, key=lambda name: len(found[name]))
    if not found[clock]:
        tried = options.clock or "any clock"
        raise UsageError(
            f"figure 'ratios' needs rows with a ratio to {options.baseline!r} by {tried}, of paired rounds; "
            f"{words.lacking(every)}"
        )
    return clock, found[clock]


def _by(every: Sequence[Shape], clock: ClockName, baseline: str) -> list[_Judged]:
    judged = []
    for each in timed.pick(every, clock)[1]:
        ratio = _ratio(each, clock, baseline)
        if ratio is not None:
            judged.append(_Judged(each, ratio, speedup.of(ratio)))
    return judged


def _ratio(each: Timed, clock: ClockName, baseline: str) -> Ratio | None:
    """The recorded ratio to the baseline, or that of the rounds of both."""
    recorded = each.clock.ratio_to_eager
    if each.row.backend == baseline:
        return None
    if recorded is not None and recorded.baseline == baseline:
        return recorded
    other = next((row for row in each.shape.rows if row.backend == baseline and not row.emulated), None)
    theirs = clock_of(other, clock) if other is not None else None
    return None if theirs is None else stats.paired(each.clock, theirs, baseline)


def _spec(values: list[dict[str, Any]], labelled: Labelled, width: int) -> dict[str, Any]:
    row, bands = axes.rows(labelled.labels, labelled.groups, "ratios", width)
    ends = [each[end] for each in values for end in ("low", "high")]
    x = {"type": "quantitative", "title": "speedup, × (log scale)", **axes.log(min(*ends, 1.0), max(*ends, 1.0))}
    looks = style.look_scales(labelled.names)
    colour = {"field": "backend", "type": "nominal", "scale": looks["color"], "legend": None}
    filled = {"test": {"field": "certain", "equal": True}, **colour}
    return style.spec(
        width,
        {"step": _ROW},
        "speedup over a baseline, one row per backend and shape",
        data={"values": values},
        layer=[
            *bands,
            axes.line(1),
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"y": row, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour},
            },
            {
                "mark": {"type": "point", "opacity": 1, "strokeWidth": 1.2},
                "encoding": {
                    "y": row,
                    "x": {**x, "field": "ratio"},
                    "shape": {"field": "backend", "type": "nominal", "scale": looks["shape"], "legend": None},
                    "stroke": colour,
                    "fill": {"condition": filled, "value": "white"},
                },
            },
        ],
    )
