"""Renders how two jobs differ as text, Markdown, CSV or JSON: times over the ranks, and rank by rank."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion import units
from mlpfusion.report.grid import csv_text, fitted, folded, tabulated, titled
from mlpfusion.storage.letters import escaped, markdown, printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.job import JobDifference

_LISTED: Final = 40


def render(found: JobDifference, fmt: str = "text", *, everything: bool = False) -> str:
    """The difference in one of `grid.FORMATS`; ends with a newline. With `everything` each rank has a line."""
    if fmt == "json":
        document = {"schema": 1, "kind": "difference", **msgspec.to_builtins(found)}
        return escaped(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"
    if fmt == "csv":
        rows = [{"what": one.name, "rank": None, "a_us": one.a_us, "b_us": one.b_us} for one in found.times]
        rows += [{"what": "call", "rank": one.rank, "a_us": one.a_us, "b_us": one.b_us} for one in found.ranks]
        return csv_text(rows)
    github = fmt == "github"
    devices = (", ".join(names) or "not known" for names in (found.a_devices, found.b_devices))
    lines = [
        "devices  a {}, b {}".format(*devices),
        f"a  {found.a}, {found.a_ranks} traces",
        f"b  {found.b}, {found.b_ranks} traces",
    ]
    blocks = ["\n".join(f"- {markdown(line)}" if github else folded(line, 3) for line in lines)]
    if found.times:
        cells = [[one.name, *_change(one.a_us, one.b_us)] for one in found.times]
        over = f"{len(found.ranks)} ranks of both" if found.ranks else "all ranks of each"
        blocks.append(_table(f"µs of a call, medians over {over}", "time", cells, github=github))
    if found.ranks:
        ranks = sorted(found.ranks, key=lambda one: -abs(one.b_us - one.a_us))
        shown = ranks if everything else ranks[:_LISTED]
        cells = [[str(one.rank), *_change(one.a_us, one.b_us)] for one in shown]
        left = len(ranks) - len(shown)
        cells += [[f"{left} more that differ less; --all shows them", "", "", "", ""]] if left else []
        blocks.append(_table("Ranks, µs of a call, those that differ most first", "rank", cells, github=github))
    blocks.append("\n".join(f"- {markdown(line)}" if github else folded(line, 2) for line in found.reasons))
    return printable("\n\n".join(block for block in blocks if block) + "\n")


def _change(a_us: float, b_us: float) -> list[str]:
    return [units.plain(a_us), units.plain(b_us), f"{b_us - a_us:+.1f}", units.times(a_us / b_us) if b_us else ABSENT]


def _table(title: str, what: str, cells: list[list[str]], *, github: bool) -> str:
    heads, right = [what, "a µs", "b µs", "b − a", "a / b"], [False, *[True] * 4]
    table = tabulated(cells if github else fitted(cells, heads, right), heads, right, github=github)
    return titled(title, table, github=github)
