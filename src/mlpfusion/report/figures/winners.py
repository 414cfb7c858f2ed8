"""Draws which backend is fastest at each number of tokens of each model: a heat map, its ties hatched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.records.choice import Choice
from mlpfusion.report.figures.drawing import style
from mlpfusion.report.figures.drawing.axes import MOST_ROWS
from mlpfusion.report.figures.drawing.names import distinct, shown
from mlpfusion.report.figures.figure import Figure
from mlpfusion.report.figures.reading import shapes, timed, words
from mlpfusion.stages.choose import decide

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.records.choice import ClockName, Point
    from mlpfusion.records.clocks import Ratio
    from mlpfusion.report.figures.figure import Options
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.spec import MLPSpec
    from mlpfusion.storage.gathered import Gathered

_COLUMNS: Final = (
    "model", "mode", "tokens", "winner", "tied", "runner_up", "margin", "margin_low", "margin_high", "clock", "file",
)  # fmt: skip
_CLOCKS: Final[tuple[ClockName, ...]] = ("event_us", "graph_us", "wall_us")  # by which a choice can be made
_ROW: Final = 26
_LEAST: Final = 34  # pixels of a cell that has room for the margin
# From where to where the hatching of a cell goes, in shares of its width and height.
_HATCHING: Final = (((0, 0.5), (0.5, 0)), ((0, 1), (1, 0)), ((0.5, 1), (1, 0.5)))


class _Cell(NamedTuple):
    """One shape and who won there."""

    shape: Shape
    point: Point
    winner: str


def make(files: Sequence[Gathered], options: Options) -> Figure:
    """The figure `winners`.

    Raises:
        UsageError: nothing was timed against anything else by the clock.
    """
    every = shapes.of(files)
    clock, cells = _cells(files, every, options)
    if not cells:
        raise UsageError(
            f"figure 'winners' needs two backends timed together by {options.clock or 'one clock'}; "
            f"{words.lacking(every)}"
        )
    drawn = [cell.shape for cell in cells]
    models = _models(drawn, options.width)
    names = distinct((cell.winner for cell in cells), options.width)
    tokens = sorted({shape.workload.tokens for shape in drawn})
    title = "Fastest backend"
    caption = (
        f"{title} at each number of tokens by {clock} ({words.CLOCKS[clock]}); hatched where the interval of its ratio "
        f"to another reaches 1, a tie. Numbers elsewhere are the next one's time over it. {words.measured(drawn)}"
    )
    values = [
        {
            "model": model,
            "tokens": str(cell.shape.workload.tokens),
            "mode": cell.shape.workload.mode,
            "backend": names[cell.winner],
            "margin": _margin(cell),
        }
        for model, cell in zip(models, cells, strict=True)
    ]
    ties = [each for each, cell in zip(values, cells, strict=True) if cell.point.tied]
    return Figure(
        name="winners",
        title=title,
        caption=caption,
        spec=_spec(values, ties, tokens, names, options.width),
        columns=_COLUMNS,
        rows=tuple(_row(model, cell, clock) for model, cell in zip(models, cells, strict=True)),
        notes=timed.absent(every, clock),
        names={shown: name for name, shown in names.items()},
    )


def _cells(files: Sequence[Gathered], every: Sequence[Shape], options: Options) -> tuple[ClockName, list[_Cell]]:
    """The clock asked for, or the one of the choices, or the first that most shapes have; and their winners."""
    if options.clock == "kernel_us":
        raise UsageError(f"figure 'winners' takes no clock 'kernel_us'; valid: {', '.join(_CLOCKS)}")
    chosen = [record.clock for _, record, _ in files if isinstance(record, Choice)]
    wanted = options.clock or (chosen[0] if chosen else None)
    found = {name: list(_won(files, every, name)) for name in ((wanted,) if wanted else _CLOCKS)}
    clock = max(found, key=lambda name: len(found[name]))
    return clock, found[clock]


def _won(files: Sequence[Gathered], every: Sequence[Shape], clock: ClockName) -> Iterator[_Cell]:
    """The winner of each shape: as a choice has it, else as `choose` decides it from the samples."""
    decided: dict[tuple[Path, MLPSpec, int, str], Point] = {
        (Path(path).parent, record.spec, point.tokens, point.mode): point
        for path, record, _ in files
        if isinstance(record, Choice) and record.clock == clock
        for point in record.points
    }
    wrong = decide.disqualified(every)
    for shape in every:
        point = decided.get((Path(shape.path).parent, *shape.key)) or decide.point(shape, clock, wrong)
        if point.winner is not None and point.runner_up is not None:
            yield _Cell(shape, point, point.winner)


def _models(drawn: Sequence[Shape], width: int) -> tuple[str, ...]:
    """What the row of each shape is called: all that tells it from others but the number of tokens."""
    folders = [
        (shape.workload.spec, shape.workload.mode, shape.device.name, Path(shape.path).parent) for shape in drawn
    ]
    seen = [(key, shape.workload.tokens) for key, shape in zip(folders, drawn, strict=True)]
    twice = {key for key, tokens in seen if seen.count((key, tokens)) > 1}
    rows = [(*key, shape.path if key in twice else "") for key, shape in zip(folders, drawn, strict=True)]
    firsts: dict[tuple[Any, ...], Shape] = {}
    for row, shape in zip(rows, drawn, strict=True):
        firsts.setdefault(row, shape)
    told = dict(zip(firsts, words.labels(list(firsts.values()), width, tokens=False), strict=True))
    one = shown(drawn[0].model, width) if drawn[0].model else words.mlp(drawn[0].workload.spec)
    return tuple(told[row] or one for row in rows)


def _margin(cell: _Cell) -> str:
    """How much more time the next one takes, as the cell shows it; of a tie nothing, it may be less."""
    ratio = _next(cell)
    return "" if ratio is None or cell.point.tied else f"{ratio.median:.2f}×"


def _next(cell: _Cell) -> Ratio | None:
    return next((one.ratio for one in cell.point.contenders if one.backend == cell.point.runner_up), None)


def _row(model: str, cell: _Cell, clock: str) -> tuple[str | int | float | None, ...]:
    ratio, point = _next(cell), cell.point
    margin = (None, None, None) if ratio is None else (ratio.median, ratio.low, ratio.high)
    tied = ", ".join(point.tied)
    return model, point.mode, point.tokens, cell.winner, tied, point.runner_up, *margin, clock, cell.shape.path


def _fits(tokens: Sequence[int], room: float, width: int) -> bool:
    """Whether the numbers of tokens go side by side below cells of this width in pixels."""
    return style.widest([str(each) for each in tokens], width) + 4 <= room


def _spec(
    values: list[dict[str, Any]], ties: list[dict[str, Any]], tokens: Sequence[int], names: dict[str, str], width: int
) -> dict[str, Any]:
    models = list(dict.fromkeys(each["model"] for each in values))
    if len(models) > MOST_ROWS:
        raise UsageError(f"figure 'winners' would have {len(models)} rows; at most {MOST_ROWS}: name fewer files")
    looks = style.look_scales(names)
    room = style.plot_width(models, width) / len(tokens)
    x = {
        "field": "tokens",
        "type": "ordinal",
        "title": "tokens",
        "scale": {"domain": [str(each) for each in tokens], "paddingInner": 0.06, "paddingOuter": 0},
        "axis": {
            "labelAngle": 0 if _fits(tokens, room, width) else -90,
            "labelOverlap": False,
            "ticks": False,
            "domain": False,
            "grid": False,
        },
    }
    y = {
        "field": "model",
        "type": "nominal",
        "title": None,
        "scale": {"domain": models, "paddingInner": 0.06, "paddingOuter": 0},
        "axis": {"ticks": False, "domain": False, "grid": False},
    }
    legend = style.legend(list(names.values()), width, models, symbolSize=60)

    def by(what: str) -> dict[str, Any]:
        return {"field": "backend", "type": "nominal", "scale": looks[what], "legend": legend}

    marked = room >= _LEAST
    hatching = [
        {
            "data": {"values": ties},
            "mark": {"type": "rule", "color": style.INK, "strokeWidth": 0.7, "opacity": 0.45, "aria": False},
            "encoding": {
                "x": {**x, "bandPosition": first[0]},
                "x2": {"field": "tokens", "bandPosition": last[0]},
                "y": {**y, "bandPosition": first[1]},
                "y2": {"field": "model", "bandPosition": last[1]},
            },
        }
        for first, last in _HATCHING
    ]
    text = {
        "mark": {"type": "text", "dy": 7, "aria": False},
        "encoding": {"x": x, "y": y, "text": {"field": "margin"}},
    }
    return style.spec(
        width,
        {"step": _ROW},
        "the fastest backend at each number of tokens of each model",
        data={"values": values},
        layer=[
            {"mark": {"type": "rect", "opacity": 0.3}, "encoding": {"x": x, "y": y, "color": by("color")}},
            *hatching,
            {
                "mark": {
                    "type": "point",
                    "opacity": 1,
                    "filled": True,
                    "size": 50,
                    **({"yOffset": -6} if marked else {}),
                },
                "encoding": {"x": x, "y": y, "color": by("color"), "shape": by("shape")},
            },
            *([text] if marked else []),
        ],
    )
