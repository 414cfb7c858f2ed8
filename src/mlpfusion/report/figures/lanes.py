"""Draws one call on one axis: what the host did, by cause, and above what the device did, by role."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.records.profile import PreOpParts
from mlpfusion.report.figures.drawing import axes, style
from mlpfusion.report.figures.figure import Figure
from mlpfusion.report.figures.reading import rows as rows_of
from mlpfusion.report.figures.reading import shapes, words
from mlpfusion.storage import inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.records.profile import PreOps, Row
    from mlpfusion.report.figures.figure import Options
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.storage.gathered import Gathered

_COLUMNS: Final = ("backend", "shape", "lane", "what", "from_us", "to_us", "source", "file")
_ROW: Final = 15
_SHORTEST: Final = 1e-3  # µs of what is drawn: less than a clock tells

# What the host does, by cause, in the order of a call, and what the device does, by role. So many colours are not told
# apart in grey: each has a sign as well, a letter of the host and a digit of the device.
_CAUSES: Final = {
    "dynamo_cache_lookup": "#332288",
    "compiled_region_self": "#88ccee",
    "pregraph": "#117733",
    "aot_prologue": "#ddcc77",
    "compiled_graph_entry": "#0072b2",
    "autograd_function": "#cc79a7",
    "triton_launcher": "#e69f00",
    "dispatch": "#999999",
    "runtime": "#d55e00",
    "unattributed": "#dddddd",
}
_ROLES: Final = {
    "gate_gemm": "#0072b2",
    "up_gemm": "#56b4e9",
    "gate_up_gemm": "#332288",
    "activation": "#d55e00",
    "mul": "#e69f00",
    "act_mul": "#882255",
    "down_gemm": "#009e73",
    "memset": "#000000",
    "memcpy": "#f0e442",
    "other": "#bbbbbb",
}
_MEDIANS: Final = "recorded medians"  # as the source of a call
_SIGNS: Final = {**dict(zip(_CAUSES, "abcdefghij", strict=True)), **dict(zip(_ROLES, "1234567890", strict=True))}
_DARK: Final = ("#332288", "#117733", "#0072b2", "#d55e00", "#882255", "#009e73", "#000000")  # white is read on these


class Piece(NamedTuple):
    """A stretch of one lane in µs from the call's start, and what filled it."""

    lane: str
    what: str
    start: float
    end: float


class _Call(NamedTuple):
    """One backend's call: its pieces and where they are from, or why there are none; and what else is to be said."""

    shape: Shape
    row: Row
    pieces: tuple[Piece, ...] = ()
    source: str = ""
    note: str | None = None


def make(files: Sequence[Gathered], options: Options) -> Figure:
    """The figure `lanes`.

    Raises:
        UsageError: no row has the parts of its host time and its kernels' times, in a trace or recorded.
    """
    every = shapes.of(files)
    found = [_call(shape, row) for shape in every for row in shape.rows]
    calls = [call for call in found if call.pieces]
    if not calls:
        raise UsageError(
            f"figure 'lanes' needs rows with the parts of their host time and kernel times; {words.lacking(every)}"
        )
    labelled = rows_of.label([(call.shape, call.row) for call in calls], options.width)
    values = [
        {"row": _lane(label, piece.lane), "what": piece.what, "start": piece.start, "end": piece.end}
        for label, call in zip(labelled.labels, calls, strict=True)
        for piece in call.pieces
    ]
    title = "One call on the host and on the device"
    caption = f"{title}. {_said(calls)} {words.measured(labelled.shapes)}"
    table = tuple(
        (call.row.backend, text, *piece, call.source, call.shape.path)
        for text, call in zip(labelled.texts, calls, strict=True)
        for piece in call.pieces
    )
    return Figure(
        name="lanes",
        title=title,
        caption=caption,
        spec=_spec(values, options.width),
        columns=_COLUMNS,
        rows=table,
        notes=tuple(dict.fromkeys(words.note(f"{call.row.backend}: {call.note}") for call in found if call.note)),
        keys=tuple(key._replace(row=_lane(key.row, lane)) for key in labelled.keys for lane in ("host", "device")),
    )


def _lane(label: str, lane: str) -> str:
    return f"{label} · {lane}"


def _call(shape: Shape, row: Row) -> _Call:
    """The call of the trace beside the result, if there is one of this row, else what the row recorded."""
    if row.status != "ok" or row.emulated:
        return _Call(shape, row, note=row.reason or row.status)
    path = _trace_beside(shape, row)
    why = None
    if path is not None:
        read = _of_trace(path, row)
        if isinstance(read, tuple):
            return _Call(shape, row, read, f"trace {path.name}")
        why = f"from recorded medians, since its trace {path.name} is not used: {read}"
    times = [kernel.time_us for kernel in row.kernels]
    if row.pre_ops is None or row.pre_ops.time_to_first_launch is None or not times or None in times:
        return _Call(shape, row, note=why or "no parts of the host's time or no times of kernels")
    return _Call(shape, row, tuple(_of_medians(row, row.pre_ops)), _MEDIANS, why)


def _trace_beside(shape: Shape, row: Row) -> Path | None:
    """The trace of a row in the folder of its result. A name with a folder in it is none of ours."""
    name = row.trace_file
    if inputs.is_stdin(shape.path) or not name or Path(name).name != name or "\0" in name:
        return None
    path = Path(shape.path).parent / name
    return path if path.is_file() else None


def _of_trace(path: Path, row: Row) -> tuple[Piece, ...] | str:
    """The pieces of the median call of a trace, or why they are not those of the row."""
    from mlpfusion.trace.analysis import lanes

    try:
        found = lanes.read(str(path))
    except MlpfusionError as error:
        return str(error)
    if sorted(found.kernels) != sorted(kernel.name for kernel in row.kernels):
        return "it has other kernels than the row"
    both = (("host", found.host), ("device", found.device))
    return tuple(
        Piece(lane, *each) for lane, stretches in both for each in stretches if each.end_us - each.start_us >= _SHORTEST
    )


def _of_medians(row: Row, found: PreOps) -> Iterator[Piece]:
    """The host's parts one after the other, and from the first launch on the kernels one after the other."""
    now = 0.0
    for parts in (found, found.between_launches):
        for what in PreOpParts.__struct_fields__ if parts is not None else ():
            length = getattr(parts, what) or 0.0
            if length >= _SHORTEST:
                yield Piece("host", what, now, now + length)
                now += length
    now = found.time_to_first_launch or 0.0
    for kernel in row.kernels:
        length = kernel.time_us or 0.0
        if length >= _SHORTEST:
            yield Piece("device", kernel.role, now, now + length)
            now += length


def _said(calls: Sequence[_Call]) -> str:
    """How to read the lanes, which depends on where they are from."""
    said = (
        "Host: the innermost event of each instant, by cause, first up to the first launch and then between launches. "
        "Device: kernels by role."
    )
    medians = [call for call in calls if call.source == _MEDIANS]
    traced = [call for call in calls if call.source != _MEDIANS]
    if traced:
        whose = "" if not medians else f" ({words.listed(words.caption_name(call.row.backend) for call in traced)})"
        said += f" From traces beside the result{whose}: the call whose time to its first launch is the median."
    if medians:
        whose = "" if not traced else f" ({words.listed(words.caption_name(call.row.backend) for call in medians)})"
        said += (
            f" From recorded medians{whose}: parts of one cause are drawn together, and kernels without the gaps "
            "between them, from the first launch on."
        )
    known = [each for call in calls if call.row.pre_ops and (each := call.row.pre_ops.profiler_inflation) is not None]
    if known:
        said += f" Host times are under the profiler, {min(known):.2g} to {max(known):.2g} times those without it."
    return said


def _spec(values: list[dict[str, Any]], width: int) -> dict[str, Any]:
    labels = list(dict.fromkeys(each["row"] for each in values))
    calls = list(dict.fromkeys(label.rpartition(" · ")[0] for label in labels))
    row, bands = axes.rows(labels, [calls.index(label.rpartition(" · ")[0]) for label in labels], "lanes", width)
    known = {**_CAUSES, **_ROLES}
    found = {each["what"] for each in values}
    signed = {what: f"{_SIGNS[what]} {what}" for what in known if what in found}
    longest = max(each["end"] for each in values)
    room = style.plot_width(labels, width)
    drawn = [
        {
            **each,
            "what": signed[each["what"]],
            "middle": (each["start"] + each["end"]) / 2,
            "sign": _SIGNS[each["what"]] if (each["end"] - each["start"]) / longest * room > 11 else "",
            "ink": "#ffffff" if known[each["what"]] in _DARK else "#000000",
        }
        for each in values
    ]
    x = {"type": "quantitative", "title": "µs", **axes.linear(0, longest)}
    colour = {"domain": list(signed.values()), "range": [known[what] for what in signed]}
    legend = style.legend(list(signed.values()), width, labels, symbolType="square")
    return style.spec(
        width,
        {"step": _ROW},
        "parts of one call on the host and on the device",
        data={"values": drawn},
        layer=[
            *bands,
            {
                "mark": {"type": "bar", "height": 11, "stroke": "white", "strokeWidth": 0.6},
                "encoding": {
                    "y": row,
                    "x": {**x, "field": "start"},
                    "x2": {"field": "end"},
                    "fill": {"field": "what", "type": "nominal", "scale": colour, "legend": legend},
                },
            },
            {
                "transform": [{"filter": "datum.sign"}],  # most pieces of many rows have no room for theirs
                "mark": {"type": "text", "aria": False},
                "encoding": {
                    "y": row,
                    "x": {**x, "field": "middle"},
                    "text": {"field": "sign"},
                    "color": {"field": "ink", "type": "nominal", "scale": None, "legend": None},
                },
            },
        ],
    )
