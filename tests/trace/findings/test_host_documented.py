"""Every finding that there is stands in the table of the documentation, and no other."""

from __future__ import annotations

import re

from support.paths import ROOT

SOURCES = ROOT / "src" / "mlpfusion" / "trace" / "findings"


def test_the_table_lists_each_finding() -> None:
    made = set()
    for path in SOURCES.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        made |= set(re.findall(r'\bid="(\w+)"', source))
        made |= set(re.findall(r'\("(?:HtoD|DtoH)", "(\w+)"', source))
    page = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    table = page.partition("### Findings")[2].partition("\n\n`gpu_bound` needs")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == made
