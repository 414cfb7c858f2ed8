"""Renders traces as text or Markdown pages, as CSV of their kernels, or as JSON of everything."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion import units
from mlpfusion.report.grid import FORMATS, csv_text, folded, tabulated, titled
from mlpfusion.report.trace.asides import asides
from mlpfusion.report.trace.collectives import collective_table
from mlpfusion.report.trace.findings import findings_text
from mlpfusion.report.trace.header import header
from mlpfusion.report.trace.kernels import kernel_lines, kernel_table
from mlpfusion.report.trace.pre_ops import pre_ops_table
from mlpfusion.report.trace.rates import rate_table
from mlpfusion.spec import one_of
from mlpfusion.storage.letters import markdown, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeAlias

    from mlpfusion.records.job import Job
    from mlpfusion.records.trace import Finding, Reading

    Told: TypeAlias = tuple[Reading, Sequence[Finding]]

SCHEMA: Final = 1
_LISTED: Final = 40  # rows of a table


def render(told: Sequence[Told], fmt: str = "text", *, jobs: Sequence[Job] = (), everything: bool = False) -> str:
    """Readings with their findings in one of `grid.FORMATS`; ends with a newline. `jobs` are in JSON alone.

    Tables of text and Markdown have their first 40 rows, with `everything` all.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return json.dumps(document(told, jobs), indent=1, ensure_ascii=False) + "\n"
    if fmt == "csv":
        return csv_text([line for reading, _ in told for line in kernel_lines(reading)])
    github = fmt == "github"
    pages = [_page(reading, findings, github=github, everything=everything) for reading, findings in told]
    return printable("\n\n\n".join(pages) + "\n")


def document(told: Sequence[Told], jobs: Sequence[Job] = ()) -> dict[str, Any]:
    """Everything, as plain values: traces by themselves, and jobs where there are any."""
    traces = [{**msgspec.to_builtins(reading), "findings": msgspec.to_builtins(findings)} for reading, findings in told]
    found: dict[str, Any] = {"schema": SCHEMA, "kind": "readings", "traces": traces}
    return {**found, "jobs": msgspec.to_builtins(jobs)} if jobs else found


def _page(reading: Reading, findings: Sequence[Finding], *, github: bool, everything: bool) -> str:
    tables = _tables(reading, github=github, everything=everything)
    blocks = [
        header(reading, github=github),
        *(titled(title if github else folded(title, 2), table, github=github) for title, table in tables),
        _lines(asides(reading), github=github),
        findings_text(findings, github=github),
    ]
    return "\n\n".join(block for block in blocks if block)


def _tables(reading: Reading, *, github: bool, everything: bool) -> Iterable[tuple[str, str]]:
    yield from filter(
        None, (kernel_table(reading, github=github, everything=everything), pre_ops_table(reading, github=github))
    )
    if reading.breakdown is not None and reading.breakdown.rates and not reading.incomplete:
        yield rate_table(reading.breakdown.rates, github=github)
    if reading.breakdown is not None and reading.breakdown.collectives:
        yield collective_table(reading.breakdown.collectives, github=github)
    if len(reading.streams) > 1:
        cells = [[one.device, one.stream, str(one.events), units.plain(one.busy_us)] for one in reading.streams]
        cells, left = (cells, []) if everything else (cells[:_LISTED], cells[_LISTED:])
        cells += [[str(len(left)), "more; --all shows them", "", ""]] if left else []
        heads = ["device", "stream", "events", "busy µs"]
        yield "Streams", tabulated(cells, heads, [False, False, True, True], github=github)


def _lines(lines: Iterable[str], *, github: bool) -> str:
    return "\n".join(f"- {markdown(line)}" if github else folded(line, 2) for line in lines)
