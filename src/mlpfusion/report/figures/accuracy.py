"""Draws each backend's error against fp64 over eager's own, with the limit up to which a row passes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from mlpfusion.errors import UsageError
from mlpfusion.records.profile import BASELINE
from mlpfusion.report.figures.drawing import axes, style
from mlpfusion.report.figures.figure import Figure
from mlpfusion.report.figures.reading import kinds, shapes, words
from mlpfusion.report.figures.reading import rows as rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.records.profile import Accuracy
    from mlpfusion.report.figures.figure import Options
    from mlpfusion.report.figures.reading.rows import Labelled
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.storage.gathered import Gathered

_KINDS: Final = (
    kinds.Kind("largest error", "circle", "#0072b2"),
    kinds.Kind("rms error", "triangle-up", "#d55e00", hollow=True),
    kinds.Kind("limit", kinds.TICK, style.INK),
)
_COLUMNS: Final = (
    "backend", "shape", "max_error_over_eager", "rms_error_over_eager", "limit", "max_error", "rms_error",
    "eager_max_error", "eager_rms_error", "elements", "file",
)  # fmt: skip
_ROW: Final = 15


def make(files: Sequence[Gathered], options: Options) -> Figure:
    """The figure `accuracy`.

    Raises:
        UsageError: no row but eager's has an error that can be drawn.
    """
    every = shapes.of(files)
    pairs = [
        (shape, row, row.accuracy)
        for shape in every
        for row in shape.rows
        if row.accuracy is not None and row.backend != BASELINE
    ]
    drawn = [each for each in pairs if list(_marks(each[2]))]
    if not drawn:
        raise UsageError(f"figure 'accuracy' needs rows with an error beside {BASELINE}'s; {words.lacking(every)}")
    labelled = rows_of.label([(shape, row) for shape, row, _ in drawn], options.width)
    values = [
        {"row": label, "kind": kind, "ratio": ratio}
        for label, (_, _, accuracy) in zip(labelled.labels, drawn, strict=True)
        for kind, ratio in [*_marks(accuracy), ("limit", accuracy.limit)]
    ]
    title = f"Error over {BASELINE}'s"
    caption = (
        f"{title}: the largest and the rms error against a double-precision result, relative to the reference's "
        f"magnitude, over those of {BASELINE} in the same type; beyond the limit a backend fails. In training it is "
        f"the worst over the output and all gradients. {words.measured(labelled.shapes)}"
    )
    table = tuple(
        (
            row.backend,
            text,
            *(dict(_marks(found)).get(kind.name) for kind in _KINDS[:2]),
            found.limit,
            found.max_error,
            found.rms_error,
            found.eager_max_error,
            found.eager_rms_error,
            found.elements,
            shape.path,
        )
        for text, (shape, row, found) in zip(labelled.texts, drawn, strict=True)
    )
    return Figure(
        name="accuracy",
        title=title,
        caption=caption,
        spec=_spec(values, labelled, options.width),
        columns=_COLUMNS,
        rows=table,
        notes=_absent(every),
        keys=labelled.keys,
    )


def _marks(found: Accuracy) -> Iterator[tuple[str, float]]:
    """The errors over eager's that a logarithmic axis can show."""
    both = ((found.max_error, found.eager_max_error), (found.rms_error, found.eager_rms_error))
    for kind, (error, eager) in zip(_KINDS, both, strict=False):
        if error and eager and math.isfinite(error / eager) and error / eager > 0:
            yield kind.name, error / eager


def _absent(every: Sequence[Shape]) -> tuple[str, ...]:
    """One line for each row that has no error, or one that cannot be drawn."""
    said: dict[str, None] = {}
    for row in (row for shape in every for row in shape.rows if row.backend != BASELINE):
        found = row.accuracy
        if found is None:
            why = row.reason if row.status != "ok" else None
            said[f"{row.backend}: {' '.join((why or 'no error is recorded').split())}"] = None
        elif len(list(_marks(found))) < 2:
            exact = found.max_error == found.rms_error == 0
            said[f"{row.backend}: {'no error at all' if exact else found.times(BASELINE)}"] = None
    return tuple(map(words.note, said))


def _spec(values: list[dict[str, Any]], labelled: Labelled, width: int) -> dict[str, Any]:
    row, bands = axes.rows(labelled.labels, labelled.groups, "accuracy", width)
    ratios = [each["ratio"] for each in values]
    scale = axes.log(min(*ratios, 1.0), max(*ratios, 1.0))
    x = {"field": "ratio", "type": "quantitative", "title": f"error / {BASELINE}'s error (log scale)", **scale}
    return style.spec(
        width,
        {"step": _ROW},
        "error of each backend over that of eager, and the limit",
        data={"values": values},
        layer=[*bands, axes.line(1, color=style.FAINT), kinds.layer(kinds.present(_KINDS, values), row, x, width)],
    )
