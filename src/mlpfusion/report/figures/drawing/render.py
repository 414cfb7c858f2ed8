"""Writes a figure as SVG, PDF, PNG or Vega-Lite's JSON, the same bytes for the same figure and fonts."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Final

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.report.figures.drawing import pdf, style
from mlpfusion.report.grid import csv_text
from mlpfusion.spec import one_of
from mlpfusion.storage.letters import escaped

if TYPE_CHECKING:
    from types import ModuleType

    from mlpfusion.report.figures.figure import Figure

FORMATS: Final = ("svg", "pdf", "png", "json")
_VERSION: Final = "6.4"  # of Vega-Lite
_PNG: Final = 300  # dots an inch, if those are no more than _MOST
_MOST: Final = 8e6  # dots of a PNG: a page of A4 has so many at 300, and ten pages below each other would take seconds
_POINTS: Final = 72 / 96  # in one pixel
_HEAD: Final = re.compile(r'<svg ([^>]*?)width="([\d.]+)" height="([\d.]+)"')


def render(figure: Figure, fmt: str) -> bytes:
    """The figure in one of `FORMATS`.

    Raises:
        UsageError: `fmt` is none of them, or what draws the others than JSON is not installed.
        MlpfusionError: the figure cannot be drawn.
    """
    one_of("format of a figure", fmt, FORMATS)
    if fmt == "json":
        return f"{escaped(json.dumps(figure.spec, ensure_ascii=False, indent=1))}\n".encode()
    converter = _converter()
    try:
        drawn = converter.vegalite_to_svg(figure.spec, vl_version=_VERSION, allowed_base_urls=[])
        fit = _fit(figure, drawn)
        if fmt == "svg":
            return (_sized(_numbered(drawn), fit / style.PIXELS, "mm") + "\n").encode()
        svg = _sized(_numbered(drawn), fit * _POINTS, "")
        if fmt == "png":
            return bytes(converter.svg_to_png(svg, ppi=_dots(svg)))
        return pdf.ordered(converter.svg_to_pdf(svg))
    except ValueError as error:
        raise MlpfusionError(f"figure {figure.name!r} cannot be drawn: {str(error).splitlines()[0]}") from error


def data(figure: Figure, fmt: str) -> bytes:
    """The numbers behind a figure as `csv` or `json`."""
    rows = [dict(zip(figure.columns, row, strict=True)) for row in figure.rows]
    if one_of("format of a figure's data", fmt, ("csv", "json")) == "csv":
        return csv_text(rows).encode("utf-8", "backslashreplace")
    document = {"figure": figure.name, "caption": figure.caption, "notes": figure.notes, "rows": rows}
    return f"{escaped(json.dumps(document, ensure_ascii=False, indent=1))}\n".encode()


def _converter() -> ModuleType:
    try:
        import vl_convert
    except ModuleNotFoundError:
        raise UsageError(
            "SVG, PDF and PNG need vl-convert-python, which is not installed: pip install 'mlpfusion-read[figures]'; "
            "a figure as .json needs nothing"
        ) from None
    found: ModuleType = vl_convert
    return found


def _fit(figure: Figure, svg: str) -> float:
    """By how much a drawing of several views is scaled to its width; one view has it already."""
    wanted = figure.spec.get("usermeta", {}).get("width")
    drawn = _HEAD.search(svg)
    return 1.0 if wanted is None or drawn is None else float(wanted) / float(drawn[2])


def _dots(svg: str) -> float:
    """Dots an inch of a PNG of a drawing in points; the file says how many."""
    found = _HEAD.search(svg)
    assert found is not None
    inches = [float(size) / 72 for size in found.group(2, 3)]
    return min(_PNG, math.floor(math.sqrt(_MOST / (inches[0] * inches[1]))))


def _numbered(svg: str) -> str:
    """The drawing with its ids counted from 1: those of the converter go on from one figure to the next."""
    ids: dict[str, str] = {}
    for name in re.findall(r' id="([\w-]+)"', svg):
        ids.setdefault(name, f"id{len(ids) + 1}")
    svg = re.sub(r' id="([\w-]+)"', lambda found: f' id="{ids[found[1]]}"', svg)
    return re.sub(r"url\(#([\w-]+)\)", lambda found: f"url(#{ids.get(found[1], found[1])})", svg)


def _sized(svg: str, scale: float, unit: str) -> str:
    """The drawing with its size in other units than pixels."""

    def head(found: re.Match[str]) -> str:
        width, height = (f"{float(size) * scale:.6g}{unit}" for size in found.group(2, 3))
        return f'<svg {found[1]}width="{width}" height="{height}"'

    return _HEAD.sub(head, svg, count=1)
