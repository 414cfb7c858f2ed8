"""Draws what `mlpfusion compare` finds between two results: the ratio of each row's times with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.report.figures.drawing import axes, style
from mlpfusion.report.figures.drawing.names import distinct, shown
from mlpfusion.report.figures.figure import Figure
from mlpfusion.report.figures.reading import kinds, words
from mlpfusion.stages.compare import run
from mlpfusion.storage import inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.comparison import ClockChange, Comparison, GroupChange, RowChange
    from mlpfusion.report.figures.figure import Options
    from mlpfusion.storage.gathered import Gathered

_KINDS: Final = (
    kinds.Kind("faster", "triangle-up", "#0072b2"),
    kinds.Kind("slower", "triangle-down", "#d55e00"),
    kinds.Kind("same", "circle", style.INK),
    kinds.Kind("inconclusive", "diamond", "#777777", hollow=True),
)
_COLUMNS: Final = (
    "group", "baseline", "candidate", "clock", "verdict", "ratio", "low", "high", "baseline_us", "candidate_us",
    "reason",
)  # fmt: skip
_ROW: Final = 15
_ALIKE: Final = "#efefef"


class _Judged(NamedTuple):
    """One clock of one pair of rows that got a verdict."""

    group: int
    title: str
    row: RowChange
    time: ClockChange
    ends: tuple[float, float, float]


def make(files: Sequence[Gathered], options: Options) -> Figure:
    """The figure `compare`, of two results as `mlpfusion compare` takes them.

    Raises:
        UsageError: there are not two of them, they cannot be compared, or no row of theirs got a verdict.
    """
    names = list(dict.fromkeys(each.given for each in files))
    if len(names) != 2:
        raise UsageError(f"figure 'compare' needs two results, a baseline and a candidate; {len(names)} are given")
    if any(inputs.is_stdin(name) for name in names):
        raise UsageError("figure 'compare' needs two files or folders; stdin is read only once")
    found = run.compare(*names)
    rows = [judged for place, group in enumerate(found.groups) for judged in _of_group(place, group)]
    if not rows:
        raise UsageError(
            f"figure 'compare' needs rows in both with times of several rounds; {words.caption_name(names[0])} and "
            f"{words.caption_name(names[1])} have none in common"
        )
    labels = _labels(rows, options.width)
    values = [
        {"row": label, "kind": row.time.word, "ratio": row.ends[0], "low": row.ends[1], "high": row.ends[2]}
        for label, row in zip(labels, rows, strict=True)
    ]
    title = "Change between two results"
    caption = (
        f"{title}: time in {words.caption_name(names[0])} / time in {words.caption_name(names[1])}, with the interval "
        f"of {found.confidence:.0%} confidence; right of 1 is faster. A change within the shaded {found.threshold:.3g} "
        f"is none. {_context(found)}"
    )
    table = tuple(
        (
            row.title,
            row.row.baseline,
            row.row.candidate,
            row.time.clock,
            row.time.word,
            *row.ends,
            row.time.baseline_us,
            row.time.candidate_us,
            row.time.reason,
        )
        for row in rows
    )
    return Figure(
        name="compare",
        title=title,
        caption=caption,
        spec=_spec(values, labels, [row.group for row in rows], found.threshold, options.width),
        columns=_COLUMNS,
        rows=table,
        notes=_absent(found),
    )


def _of_group(place: int, group: GroupChange) -> list[_Judged]:
    return [
        _Judged(place, group.title, row, time, (time.ratio, time.low, time.high))
        for row in group.rows
        for time in row.times
        if time.word and time.ratio is not None and time.low is not None and time.high is not None
    ]


def _labels(rows: Sequence[_Judged], width: int) -> tuple[str, ...]:
    """The rows' names, the clock where there are several, and a number for the group where there are several."""
    clocks, groups = {row.time.clock for row in rows}, {row.group for row in rows}
    texts = []
    for row in rows:
        pair = [shown(name, width) for name in dict.fromkeys((row.row.baseline, row.row.candidate))]
        group = [row.title.partition(",")[0]] if len(groups) > 1 else []
        texts.append(" · ".join([" → ".join(pair), *group, *([row.time.clock] if len(clocks) > 1 else [])]))
    found: dict[int, str] = {}
    for place, text in enumerate(texts):
        again = texts[:place].count(text)
        found[place] = f"{text} ({again + 1})" if again else text
    return tuple(distinct(found.values(), 178).values())


def _context(found: Comparison) -> str:
    groups = words.listed((words.note(group.title) for group in found.groups), 3)
    controls = words.listed(words.caption_name(group.control) for group in found.groups if group.control)
    return groups + (f"; times are relative to {controls} in the same rounds." if controls else ".")


def _absent(found: Comparison) -> tuple[str, ...]:
    """One line for each row without a verdict, and for those of one side alone."""
    said = [
        f"{row.baseline}: {row.note or _reason(row) or 'no times in both'}"
        for group in found.groups
        for row in group.rows
        if not any(time.word for time in row.times) and row.baseline != group.control
    ]
    said += [f"{name}: in the baseline alone" for name in found.only_baseline]
    said += [f"{name}: in the candidate alone" for name in found.only_candidate]
    return tuple(dict.fromkeys(map(words.note, said)))


def _reason(row: RowChange) -> str | None:
    return next((time.reason for time in row.times if time.reason), None)


def _spec(
    values: list[dict[str, Any]], labels: Sequence[str], groups: Sequence[int], threshold: float, width: int
) -> dict[str, Any]:
    row, bands = axes.rows(labels, groups, "compare", width)
    alike = (1 / (1 + threshold), 1 + threshold)
    ends = [each[end] for each in values for end in ("low", "high")]
    x = {
        "type": "quantitative",
        "title": "baseline / candidate, × (log scale)",
        **axes.log(min(*ends, alike[0]), max(*ends, alike[1])),
    }
    return style.spec(
        width,
        {"step": _ROW},
        "ratio of times between two results, with its interval",
        data={"values": values},
        layer=[
            *bands,
            {
                "data": {"values": [{"first": alike[0], "last": alike[1]}]},
                "mark": {"type": "rect", "color": _ALIKE, "aria": False},
                "encoding": {"x": {**x, "field": "first"}, "x2": {"field": "last"}},
            },
            axes.line(1),
            {
                "mark": {"type": "rule", "strokeWidth": 2, "color": style.FAINT},
                "encoding": {"y": row, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
            },
            kinds.layer(kinds.present(_KINDS, values), row, {**x, "field": "ratio"}, width),
        ],
    )
