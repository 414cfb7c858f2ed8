"""Makes figures of files for tests, and says what every figure has to be."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any

from mlpfusion.report.figures import registry
from mlpfusion.report.figures.drawing import style
from mlpfusion.report.figures.figure import Options
from mlpfusion.storage.gathered import Gathered, gather
from support.paths import RESULTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.report.figures.figure import Figure

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '";alert(1);//',
    "datum['x'] + 1",
    "{signal: 'width'}",
    "\u202eegrel\u202c",
    "שלום",
    "</script><script>",
    "a\\b%c_d#e&f$g",
    "line\nbreak\ttab\0nul",
    "void kernel<" + "at::native::Functor<float, 4>, " * 330 + ">",
)

# Files from which each figure is made.
RECORDED = {
    "ratios": ("h200-choose-article",),
    "tokens": ("h200-choose-gemma-2b",),
    "roofline": ("h200-profile.json",),
    "bytes": ("h200-traffic.json",),
    "lanes": ("h200-article-training.json",),
    "flow": ("h200-profile.json",),
    "winners": ("h200-grid.json",),
    "accuracy": ("h200-profile.json", "h200-choose-gemma-2b"),
    "compare": ("h200-article.json", "h200-profile.json"),
}


def figure(name: str, *files: str, **options: Any) -> Figure:
    """The figure of files in bench/results."""
    return registry.make(name, read(*files), Options(**options))


@functools.cache
def read(*files: str) -> tuple[Gathered, ...]:
    """Files of bench/results, each read once: records are frozen."""
    return gather([str(RESULTS / each) for each in files])


def of(name: str, *records: Any, **options: Any) -> Figure:
    """The figure of records, as if each were read from a file."""
    read = [
        Gathered(f"folder/file-{number}.json", record, f"file-{number}.json")
        for number, record in enumerate(records, 1)
    ]
    return registry.make(name, read, Options(**options))


def check(made: Figure) -> None:
    """Whatever a figure shows: one table, no title inside, its width, and no name in an expression."""
    assert made.caption.startswith(made.title)
    assert "\n" not in made.caption
    assert made.caption.isprintable()
    assert made.rows
    assert all(len(row) == len(made.columns) for row in made.rows)
    assert "title" not in made.spec
    assert made.spec["$schema"] == style.SCHEMA
    assert (made.spec if "width" in made.spec else made.spec["usermeta"])["width"] in (
        style.pixels(84),
        style.pixels(178),
    )
    json.dumps(made.spec, allow_nan=False)
    texts = set(_strings(_data_of(made.spec)))
    for expression in _expressions(made.spec):
        assert re.fullmatch(r"[\w\s.+*/()-]*", expression), expression
        assert expression not in texts
    for size in _sizes(made.spec):
        assert size * 0.75 >= 7


def _data_of(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if "values" in value:
            yield value["values"]
        for each in value.values():
            yield from _data_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from _data_of(each)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif not isinstance(value, int | float | None):
        for each in value:
            yield from _strings(each)


# Where Vega-Lite takes an expression, or makes one of what it is given: a list as `sort` becomes comparisons.
_EVALUATED = ("expr", "signal", "calculate", "labelExpr", "update", "test", "filter", "sort")


def _expressions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name in _EVALUATED:
                yield from _strings(each)
            yield from _expressions(each)
    elif isinstance(value, list):
        for each in value:
            yield from _expressions(each)


def _sizes(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name.lower().endswith("fontsize"):
                yield each
            yield from _sizes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _sizes(each)
