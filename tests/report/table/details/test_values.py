"""The values of each row that go through memory."""

from __future__ import annotations

from support.paths import RESULTS

from mlpfusion.report.table.details.detail import table
from mlpfusion.report.table.details.values import VALUES
from mlpfusion.stages.tabulate import races, sources


def test_a_value_has_its_bytes_and_the_kernels_at_both_ends() -> None:
    (found,) = table(VALUES, races.of_sources(sources.read([str(RESULTS / "h200-profile.json")])))
    first = found.lines[0]
    assert float(first.cells[2].text) * 1e6 == first.data["bytes"] or first.data["bytes"] > 0
    assert first.data["written_by"]
    assert first.data["read_by"]
