"""Makes docs/published: one report page, and a table of two recordings in every format.

python tools/published.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion.report.page import page
from mlpfusion.report.page import sources as pages
from mlpfusion.report.table import render
from mlpfusion.report.table.document import Options
from mlpfusion.stages.tabulate import sources

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[1]
PUBLISHED: Final = ROOT / "docs" / "published"
RESULTS: Final = "bench/results"
PAGE: Final = "h200-article-1"  # five processes; the other is of schema 1, of one process
TABLES: Final = (PAGE, "h200-profile")
VERSION: Final = "0.1.0"
ENDINGS: Final = {
    "text": "txt",
    "github": "github.txt",
    "latex": "tex",
    "csv": "csv",
    "json": "json",
    "html": "table.html",
}


def made() -> dict[str, Callable[[], str]]:
    """How each file of the folder is made, by its name."""
    tables = {
        f"{name}.{ending}": lambda name=name, fmt=fmt: table(name, fmt)
        for name in TABLES
        for fmt, ending in ENDINGS.items()
    }
    return {f"{PAGE}.html": report, **tables}


def table(name: str, fmt: str) -> str:
    """What `mlpfusion table` prints of a recording's summary."""
    found = sources.read([str(ROOT / RESULTS / f"{name}.json")])
    return render.tables(found, fmt, Options(columns=("summary",)), ["--columns"])


def report() -> str:
    """The page that `mlpfusion report` writes of a recording."""
    return page.render(pages.gather([str(ROOT / RESULTS / f"{PAGE}.json")]), VERSION)


if __name__ == "__main__":
    PUBLISHED.mkdir(exist_ok=True)
    for file, text in made().items():
        (PUBLISHED / file).write_text(text(), encoding="utf-8")
    sys.exit(0)
