"""Draws the values that go through device memory: each from the launch that writes it to those that read it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion import units
from mlpfusion.errors import UsageError
from mlpfusion.report.figures.drawing import axes, style
from mlpfusion.report.figures.figure import Figure
from mlpfusion.report.figures.reading import kinds, shapes, words
from mlpfusion.report.figures.reading import rows as rows_of
from mlpfusion.report.profile import data_flow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Row, Traffic
    from mlpfusion.records.traffic import Intermediate
    from mlpfusion.report.figures.figure import Options
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.storage.gathered import Gathered

_KINDS: Final = (
    kinds.Kind("written", "triangle-right", "#0072b2"),
    kinds.Kind("read", "circle", "#d55e00", hollow=True),
)
_COLUMNS: Final = (
    "backend", "shape", "value", "bytes", "moved_bytes", "written_by", "read_by", "saved_for_backward", "file",
)  # fmt: skip
_ROW: Final = 15
_FIRST: Final = 0.7  # where the axis of launches begins


class _Value(NamedTuple):
    """One value of one row: its number, and the launches that write and read it, counted from 1."""

    shape: Shape
    row: Row
    number: int
    value: Intermediate
    written: int
    read: tuple[int, ...]


def make(files: Sequence[Gathered], options: Options) -> Figure:
    """The figure `flow`.

    Raises:
        UsageError: no row has launches of which one reads what another wrote.
    """
    every = shapes.of(files)
    found = [
        value for shape in every for row in shape.rows if row.traffic for value in _values(shape, row, row.traffic)
    ]
    if not found:
        raise UsageError(f"figure 'flow' needs rows with launches and the values between them; {words.lacking(every)}")
    labelled = rows_of.label([(each.shape, each.row) for each in found], options.width)
    labels = [f"{label} · {_name(each)}" for label, each in zip(labelled.labels, found, strict=True)]
    values = [
        {"row": label, "kind": kind, "launch": launch}
        for label, each in zip(labels, found, strict=True)
        for kind, launch in (("written", each.written), *(("read", reader) for reader in each.read))
    ]
    spans = [
        {"row": label, "first": each.written, "last": each.read[-1], "size": units.megabytes(each.value.bytes)}
        for label, each in zip(labels, found, strict=True)
    ]
    title = "Values through device memory"
    caption = (
        f"{title} in one call: each from the launch that writes it to those that read it back, launches numbered in "
        f"their order, with its size. {words.measured(labelled.shapes)}"
    )
    table = tuple(
        (
            each.row.backend,
            text,
            _name(each),
            each.value.bytes,
            each.value.moved_bytes,
            each.value.written_by,
            ", ".join(each.value.read_by),
            each.value.saved,
            each.shape.path,
        )
        for text, each in zip(labelled.texts, found, strict=True)
    )
    return Figure(
        name="flow",
        title=title,
        caption=caption,
        spec=_spec(values, spans, _groups(found), options.width),
        columns=_COLUMNS,
        rows=table,
        notes=_absent(every),
        keys=tuple(key._replace(row=row) for row, key in zip(labels, labelled.keys, strict=True)),
    )


def _values(shape: Shape, row: Row, traffic: Traffic) -> list[_Value]:
    """Each value with its launches; those whose launches are not among the steps are left out."""
    found = []
    for number, value in enumerate(traffic.intermediates):
        written = [place for place, step in enumerate(traffic.steps, 1) if number in step.values_written]
        read = [place for place, step in enumerate(traffic.steps, 1) if number in step.values_read]
        if written and read:
            found.append(_Value(shape, row, number + 1, value, written[0], tuple(read)))
    return found


def _name(each: _Value) -> str:
    assert each.row.traffic is not None
    return data_flow.names(each.row.traffic.intermediates)[each.number - 1]


def _groups(found: Sequence[_Value]) -> list[int]:
    """Which row of which shape each value is of."""
    order = list(dict.fromkeys((id(each.shape), each.row.backend) for each in found))
    return [order.index((id(each.shape), each.row.backend)) for each in found]


def _absent(every: Sequence[Shape]) -> tuple[str, ...]:
    said: dict[str, None] = {}
    for row in (row for shape in every for row in shape.rows):
        if row.traffic is None or not row.traffic.steps:
            why = row.reason if row.status != "ok" else row.traffic and row.traffic.reasons.get("derived_bytes")
            said[words.note(f"{row.backend}: {why or 'its launches are not known'}")] = None
        elif not row.traffic.intermediates:
            said[f"{row.backend}: no value goes through memory"] = None
    return tuple(said)


def _spec(
    values: list[dict[str, Any]], spans: list[dict[str, Any]], groups: Sequence[int], width: int
) -> dict[str, Any]:
    labels = [each["row"] for each in spans]
    row, bands = axes.rows(labels, groups, "flow", width)
    last = max(each["last"] for each in spans)
    share = (style.widest([each["size"] for each in spans], width) + 12) / style.plot_width(
        labels, width
    )  # for the last size
    every = max(1, round(last / 20))
    x = {
        "field": "launch",
        "type": "quantitative",
        "title": "launch",
        "scale": {"domain": [_FIRST, last + (last - _FIRST) * share / (1 - share)], "nice": False},
        "axis": {"values": list(range(1, last + 1, every)), "format": "d", "zindex": 0},
    }
    drawn = {"data": {"values": spans}}
    return style.spec(
        width,
        {"step": _ROW},
        "values that one launch writes to device memory and another reads back",
        data={"values": values},
        layer=[
            *bands,
            {
                **drawn,
                "mark": {"type": "rule", "strokeWidth": 1.4, "color": style.FAINT, "aria": False},
                "encoding": {"y": row, "x": {**x, "field": "first"}, "x2": {"field": "last"}},
            },
            kinds.layer(_KINDS, row, x, width),
            {
                **drawn,
                "mark": {"type": "text", "align": "left", "dx": 6, "aria": False},
                "encoding": {"y": row, "x": {**x, "field": "last"}, "text": {"field": "size"}},
            },
        ],
    )
