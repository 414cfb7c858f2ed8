"""A figure as a file: the same bytes each time, its width in mm, type as type, and nothing drawn as pixels."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import struct
import subprocess
import sys
from xml.etree import ElementTree

import msgspec
import pytest
from support.figures_made import HOSTILE, RECORDED, figure, of
from support.profiles_made import COMPILE, EAGER, profile

from mlpfusion.errors import UsageError
from mlpfusion.report.figures.drawing import render

NARROW = figure("ratios", "h200-profile.json", width=84)


@pytest.fixture(scope="module")
def drawn() -> dict[str, bytes]:
    pytest.importorskip("vl_convert", reason="needs the extra figures")
    return {fmt: render.render(NARROW, fmt) for fmt in render.FORMATS}


def test_an_svg_is_as_wide_as_asked_and_has_no_raster(drawn: dict[str, bytes]) -> None:
    root = ElementTree.fromstring(drawn["svg"])
    assert float(root.get("width", "").removesuffix("mm")) == pytest.approx(84, abs=0.01)
    names = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert not {"image", "script", "foreignObject", "a", "style"} & set(names)
    sizes = [float(size.removesuffix("px")) for element in root.iter() if (size := element.get("font-size"))]
    assert sizes
    assert min(sizes) * 0.75 >= 7


def test_a_pdf_has_its_fonts_in_it_and_no_image(drawn: dict[str, bytes]) -> None:
    pypdf = pytest.importorskip("pypdf", reason="needs pypdf")
    (page,) = pypdf.PdfReader(io.BytesIO(drawn["pdf"]), strict=True).pages
    assert float(page.mediabox.width) / 72 * 25.4 == pytest.approx(84, abs=0.01)
    assert list(page.images) == []
    fonts = [font.get_object() for font in page["/Resources"]["/Font"].values()]
    assert fonts
    for font in fonts:
        descriptor = font["/DescendantFonts"][0].get_object()["/FontDescriptor"].get_object()
        assert {"/FontFile2", "/FontFile3"} & set(descriptor)
    assert "fused-graph" in page.extract_text()


def test_a_png_has_300_dots_an_inch(drawn: dict[str, bytes]) -> None:
    width, _ = struct.unpack(">II", drawn["png"][16:24])
    assert width == pytest.approx(84 / 25.4 * 300, abs=1)


@pytest.mark.parametrize(("height", "dots"), [(100, 300), (842, 300), (8420, 90), (84200, 30)])
def test_a_png_of_many_pages_has_fewer_dots(height: int, dots: int) -> None:
    found = render._dots(f'<svg class="marks" width="595" height="{height}" viewBox="0 0 1 1">')
    assert dots * 0.9 < found <= max(dots * 1.1, 300 * (dots == 300))


def test_json_is_the_specification(drawn: dict[str, bytes]) -> None:
    assert json.loads(drawn["json"]) == NARROW.spec


def test_the_same_input_gives_the_same_bytes(drawn: dict[str, bytes]) -> None:
    again = figure("ratios", "h200-profile.json", width=84)
    assert {fmt: render.render(again, fmt) for fmt in render.FORMATS} == drawn


@pytest.mark.full
@pytest.mark.parametrize("width", [84, 178])
@pytest.mark.parametrize("name", RECORDED)
def test_every_figure_is_drawn_in_its_width_without_raster(name: str, width: int) -> None:
    pytest.importorskip("vl_convert", reason="needs the extra figures")
    root = ElementTree.fromstring(render.render(figure(name, *RECORDED[name], width=width), "svg"))
    assert float(root.get("width", "").removesuffix("mm")) == pytest.approx(width, abs=0.01)
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names <= {"svg", "g", "path", "line", "text", "rect", "defs", "clipPath"}
    sizes = [float(size.removesuffix("px")) for element in root.iter() if (size := element.get("font-size"))]
    assert min(sizes) * 0.75 >= 7


@pytest.mark.full
def test_another_process_gives_the_same_bytes(drawn: dict[str, bytes]) -> None:
    code = (
        "import hashlib, sys; sys.path.insert(0, 'tests'); from support.figures_made import figure; "
        "from mlpfusion.report.figures.drawing import render; made = figure('ratios', 'h200-profile.json', width=84); "
        "print(*(hashlib.sha256(render.render(made, fmt)).hexdigest() for fmt in render.FORMATS))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.split() == [hashlib.sha256(content).hexdigest() for content in drawn.values()]


def test_markup_in_names_is_drawn_as_text() -> None:
    pytest.importorskip("vl_convert", reason="needs the extra figures")
    rows = [msgspec.structs.replace(COMPILE, backend=name) for name in HOSTILE]
    root = ElementTree.fromstring(render.render(of("ratios", profile(EAGER, *rows)), "svg"))
    texts = "\n".join(element.text or "" for element in root.iter() if element.tag.endswith("}text"))
    assert "<img src=x onerror=alert(1)>\n\";alert(1);//\ndatum['x'] + 1\n{signal: 'width'}" in texts
    assert "img" not in {element.tag.rpartition("}")[2] for element in root.iter()}


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UsageError, match=r"need vl-convert-python.*pip install 'mlpfusion-read\[figures\]'"):
        render.render(NARROW, "svg")
    assert render.render(NARROW, "json")


@pytest.mark.parametrize("fmt", ["jpeg", "", "SVG"])
def test_another_format_is_refused(fmt: str) -> None:
    with pytest.raises(UsageError, match="valid: svg, pdf, png, json"):
        render.render(NARROW, fmt)


def test_the_numbers_come_as_csv_and_json() -> None:
    rows = list(csv.DictReader(io.StringIO(render.data(NARROW, "csv").decode())))
    document = json.loads(render.data(NARROW, "json"))
    assert [row["backend"] for row in rows] == [row["backend"] for row in document["rows"]]
    assert [float(row["speedup"]) for row in rows] == [row["speedup"] for row in document["rows"]]
    assert document["caption"] == NARROW.caption
