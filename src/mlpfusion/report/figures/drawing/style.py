"""The look of all figures: type, colours that colour-blind readers tell apart, and a mark and dash per backend."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
PIXELS: Final = 96 / 25.4  # of CSS, in one mm
# Type of 7.2 pt in the narrow width and 8 pt in the wide one, in pixels of 0.75 pt; below 7 pt print is hard to read.
_TYPE: Final = {84: 9.6, 178: 10.7}
# Liberation Sans has the widths of Arial and Helvetica, which stand in where it is not installed.
FONT: Final = "Liberation Sans, Arial, Helvetica, sans-serif"
_LABELS: Final = 0.6  # of the width, that labels of rows may take
INK: Final = "#222222"
FAINT: Final = "#8a8a8a"
GRID: Final = "#e3e3e3"

_STAR: Final = (
    "M0,-1L0.225,-0.309L0.951,-0.309L0.363,0.118L0.588,0.809L0,0.382L-0.588,0.809L-0.363,0.118L-0.951,-0.309"
    "L-0.225,-0.309Z"
)
_BOWTIE: Final = "M-0.9,-0.8L0.9,0.8L0.9,-0.8L-0.9,0.8Z"
_HOURGLASS: Final = "M-0.8,-0.9L0.8,0.9L-0.8,0.9L0.8,-0.9Z"
_HEXAGON: Final = "M0.9,0L0.45,0.78L-0.45,0.78L-0.9,0L-0.45,-0.78L0.45,-0.78Z"


class Look(NamedTuple):
    """How a backend is drawn wherever it is: colour, shape of its mark, dash of its line."""

    colour: str
    shape: str
    dash: tuple[int, ...]


# Okabe and Ito's colours and, beyond their eight, Paul Tol's "muted": both are told apart with any colour vision. In
# grey the shape and the dash tell what the colour does not.
_LOOKS: Final = {
    "eager": Look("#000000", "circle", (1, 0)),
    "compile": Look("#0072b2", "square", (7, 2)),
    "compile-max-autotune": Look("#56b4e9", "diamond", (2, 2)),
    "compile-cudagraphs": Look("#332288", "triangle-down", (7, 2, 2, 2)),
    "liger": Look("#009e73", "triangle-up", (4, 2)),
    "hub": Look("#cc79a7", "triangle-left", (1, 2)),
    "triton": Look("#e69f00", "cross", (9, 3)),
    "packed": Look("#777777", "triangle-right", (5, 2, 1, 2)),
    "fused": Look("#d55e00", _STAR, (12, 2)),
    "fused-graph": Look("#882255", _BOWTIE, (12, 2, 3, 2)),
    "quack": Look("#999933", _HEXAGON, (3, 3)),
    "auto": Look("#44aa99", _HOURGLASS, (1, 3)),
}
COLOURS: Final = tuple(look.colour for look in _LOOKS.values())
_SHAPES: Final = tuple(look.shape for look in _LOOKS.values())
_DASHES: Final = tuple(look.dash for look in _LOOKS.values())
MOST_BACKENDS: Final = 100
_AXIS: Final = 62  # pixels for the labels and the title of an axis of times, rather too many than too few


def looks(backends: Sequence[str]) -> dict[str, Look]:
    """One look per backend: that of its name, so that it is the same in every figure, else one that none of ours has.

    Raises:
        UsageError: there are more backends than looks.
    """
    if len(backends) > MOST_BACKENDS:
        raise UsageError(f"a figure tells at most {MOST_BACKENDS} backends apart; the files have {len(backends)}")
    found = {name: _LOOKS[name] for name in backends if name in _LOOKS}
    count = len(_LOOKS)
    combined = (
        Look(COLOURS[place], _SHAPES[(place + shift) % count], _DASHES[(place + 2 * shift) % count])
        for shift in range(1, count)  # 0 are the looks of ours
        for place in range(count)
    )
    for name in backends:
        if name not in found:
            found[name] = next(combined)
    return {name: found[name] for name in backends}


def width_of(text: str) -> float:
    """About how wide a text is, in ems, rather too much than too little."""
    return sum(_em(letter) for letter in text)


def _em(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    if letter in "iljtfI.,:;'|![]()/ ·-":
        return 0.36
    return 0.88 if letter in "MWmw@%µ—…" else 0.7 if letter.isupper() else 0.58


def type_size(width: int) -> float:
    """The size of all type, in pixels, in a figure of so many mm."""
    return _TYPE[width]


def pixels(width: int) -> float:
    """The width of a figure of so many mm in pixels."""
    return round(width * PIXELS, 2)


def spec(width: int, height: float | dict[str, Any], description: str, **content: Any) -> dict[str, Any]:
    """A whole specification: one view of exactly this width, axes, legends and all, and a plot of this height."""
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": pixels(width),
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": 2,
        "background": "white",
        **content,
        "config": config(width),
    }


def panels(width: int, views: Sequence[dict[str, Any]], description: str) -> dict[str, Any]:
    """A whole specification of several views below each other, each with its first words as its title.

    What holds several views cannot be fitted to a width: a plot leaves room for its axis, and `render` scales the rest,
    by a few hundredths, to the width in `usermeta`.
    """
    return {
        "$schema": SCHEMA,
        "description": description,
        "usermeta": {"width": pixels(width)},
        "padding": 2,
        "background": "white",
        "spacing": 10,
        "vconcat": [{"width": round(pixels(width) - _AXIS), **view} for view in views],
        "config": config(width),
    }


def panel_title(text: str, width: int) -> dict[str, Any]:
    """The title of one of several views, in the type of all else."""
    look = {"anchor": "start", "frame": "group", "fontWeight": "normal", "fontSize": type_size(width), "color": INK}
    return {"text": text, **look}


def config(width: int) -> dict[str, Any]:
    """The configuration of every figure: no chrome but thin grid lines, no type below 7 pt."""
    size = type_size(width)
    text = {"labelFontSize": size, "titleFontSize": size, "labelColor": INK, "titleColor": INK}
    return {
        "font": FONT,
        "view": {"stroke": None},
        "text": {"fontSize": size, "color": INK},
        "axis": {
            **text,
            "titleFontWeight": "normal",
            "gridColor": GRID,
            "domainColor": FAINT,
            "tickColor": FAINT,
            "labelLimit": round(_LABELS * pixels(width)),
            "titleLimit": round(0.9 * pixels(width)),
            "labelOverlap": "greedy",
        },
        "legend": {
            **text,
            "titleFontWeight": "normal",
            "orient": "bottom",
            "direction": "horizontal",
            "titleAnchor": "start",
            "labelLimit": round(0.9 * pixels(width)),
            "symbolStrokeWidth": 1.2,
            "symbolSize": 40,
            "symbolOpacity": 1,
            "rowPadding": 2,
            "offset": 6,
            "columnPadding": 8,
        },
        "point": {"size": 36},
    }


def plot_width(labels: Sequence[str], width: int) -> float:
    """About how many pixels the labels of the rows leave for the plot."""
    return pixels(width) - min(widest(labels, width), _LABELS * pixels(width)) - 12


def widest(texts: Sequence[str], width: int) -> float:
    """About how many pixels the longest of these texts takes."""
    return max((width_of(text) for text in texts), default=1.0) * type_size(width)


def label_limit(labels: Sequence[str], width: int) -> dict[str, int]:
    """No limit for labels of rows that are within it: where there is one, what draws measures each of them often."""
    return {"labelLimit": 0} if widest(labels, width) <= _LABELS * pixels(width) else {}


def legend(names: Sequence[str], width: int, labels: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """A legend below the plot without a title, in as many columns as fit beside the rows' `labels`."""
    column = widest(names, width) + 30
    return {"title": None, "columns": max(1, int(plot_width(labels, width) // column)), **more}


def look_scales(names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The scales of colour, shape and dash for backends, given what each is called in the data."""
    drawn = looks(list(names))
    shown = list(names.values())
    return {
        "color": {"domain": shown, "range": [look.colour for look in drawn.values()]},
        "shape": {"domain": shown, "range": [look.shape for look in drawn.values()]},
        "strokeDash": {"domain": shown, "range": [list(look.dash) for look in drawn.values()]},
    }
