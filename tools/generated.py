"""Writes the parts of the documentation that are generated from the sources; a test checks that they are up to date.

python tools/generated.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlpfusion.report.columns import BACKEND, all_columns

ROOT = Path(__file__).parents[1]


def columns() -> str:
    """The table of all columns of a profile, each with its meaning."""
    rows = [f"| `{column.key}` | {column.meaning} |" for column in (BACKEND, *all_columns())]
    return "\n".join(["| column | meaning |", "|---|---|", *rows])


PARTS = {("docs/columns.md", "columns"): columns}


def filled(text: str, marker: str, part: str) -> str:
    """A page's text with `part` between its marker and the end of that."""
    before, rest = text.split(f"<!-- {marker} -->\n", 1)
    _, after = rest.split(f"<!-- /{marker} -->", 1)
    return f"{before}<!-- {marker} -->\n{part}\n<!-- /{marker} -->{after}"


def main() -> int:
    """Write every part into its page."""
    for (name, marker), made in PARTS.items():
        path = ROOT / name
        path.write_text(filled(path.read_text(encoding="utf-8"), marker, made()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
