"""Draws the device memory traffic of each backend: the minimum, what its launches move, and what counters measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mlpfusion.errors import UsageError
from mlpfusion.report.figures.drawing import axes, style
from mlpfusion.report.figures.figure import Figure
from mlpfusion.report.figures.reading import kinds, shapes, words
from mlpfusion.report.figures.reading import rows as rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Row, Traffic
    from mlpfusion.report.figures.figure import Options
    from mlpfusion.report.figures.reading.rows import Labelled
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.storage.gathered import Gathered

_KINDS: Final = (
    kinds.Kind("minimum", kinds.TICK, style.INK),
    kinds.Kind("derived", "circle", "#0072b2"),
    kinds.Kind("measured", "diamond", "#d55e00", hollow=True),
)
_COLUMNS: Final = ("backend", "shape", "minimum_bytes", "derived_bytes", "measured_bytes", "round_trips", "file")
_ROW: Final = 15


def make(files: Sequence[Gathered], options: Options) -> Figure:
    """The figure `bytes`.

    Raises:
        UsageError: no row that ran has bytes derived or measured.
    """
    every = shapes.of(files)
    pairs = [(shape, row, found) for shape in every for row in shape.rows if (found := _traffic(row))]
    if not pairs:
        raise UsageError(f"figure 'bytes' needs rows with derived or measured bytes; {words.lacking(every)}")
    labelled = rows_of.label([(shape, row) for shape, row, _ in pairs], options.width)
    values = [
        {"row": label, "kind": kind, "mb": size / 1e6}
        for label, (_, _, traffic) in zip(labelled.labels, pairs, strict=True)
        for kind, size in _sizes(traffic).items()
        if size is not None
    ]
    title = "Device memory traffic of one call"
    caption = (
        f"{title}, in MB of 10⁶ bytes: the minimum that any implementation moves (weights and x read, y written), what "
        "all launches read and write, each byte of each once (derived), and what hardware counters saw where they were "
        f"read (measured). {words.measured(labelled.shapes)}"
    )
    table = tuple(
        (row.backend, text, *_sizes(traffic).values(), traffic.round_trips, shape.path)
        for text, (shape, row, traffic) in zip(labelled.texts, pairs, strict=True)
    )
    return Figure(
        name="bytes",
        title=title,
        caption=caption,
        spec=_spec(values, labelled, options.width),
        columns=_COLUMNS,
        rows=table,
        notes=_absent(every),
        keys=labelled.keys,
    )


def _traffic(row: Row) -> Traffic | None:
    found = row.traffic
    if row.status != "ok" or found is None or (found.derived_bytes is None and found.measured_bytes is None):
        return None
    return found


def _sizes(found: Traffic) -> dict[str, int | None]:
    return {"minimum": found.minimum_bytes, "derived": found.derived_bytes, "measured": found.measured_bytes}


def _absent(every: Sequence[Shape]) -> tuple[str, ...]:
    said: dict[str, None] = {}
    for shape in every:
        for row in shape.rows:
            if _traffic(row) is None:
                reasons = row.traffic.reasons if row.traffic is not None else {}
                why = row.reason if row.status != "ok" else reasons.get("derived_bytes")
                said[f"{row.backend}: {' '.join((why or 'no bytes are recorded').split())}"] = None
    return tuple(map(words.note, said))


def _spec(values: list[dict[str, Any]], labelled: Labelled, width: int) -> dict[str, Any]:
    row, bands = axes.rows(labelled.labels, labelled.groups, "bytes", width)
    x = {"field": "mb", "type": "quantitative", "title": "MB", **axes.linear(0, max(each["mb"] for each in values))}
    spans = _spans(values)
    return style.spec(
        width,
        {"step": _ROW},
        "bytes moved by one call: minimum, derived and measured",
        data={"values": values},
        layer=[
            *bands,
            {
                "data": {"values": spans},
                "mark": {"type": "rule", "strokeWidth": 1.2, "color": style.FAINT, "aria": False},
                "encoding": {"y": row, "x": {**x, "field": "least"}, "x2": {"field": "most"}},
            },
            kinds.layer(kinds.present(_KINDS, values), row, x, width),
        ],
    )


def _spans(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """From the least to the most of each row."""
    found: dict[str, list[float]] = {}
    for each in values:
        found.setdefault(each["row"], []).append(each["mb"])
    return [{"row": row, "least": min(sizes), "most": max(sizes)} for row, sizes in found.items()]
