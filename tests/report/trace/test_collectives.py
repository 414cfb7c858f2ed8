"""The table of collectives has a row for each kind, dashes for what the trace does not tell, and an end."""

from __future__ import annotations

from mlpfusion.records.breakdown import Collective
from mlpfusion.report.trace.collectives import collective_table

TOLD = Collective(operation="all_reduce", count=3, us=700, exposed_us=100, dtype="bfloat16", group="dp", group_size=8,
                  bytes=2_500_000, bus_gb_s=187.6)  # fmt: skip
UNTOLD = Collective(operation="broadcast", count=1, us=20, exposed_us=0)


def test_rows_bear_time_size_and_bandwidth() -> None:
    title, table = collective_table([TOLD, UNTOLD], github=False)
    first, second = table.splitlines()[2:]
    assert title == "Communication in a call"
    assert first.split() == ["3", "all_reduce", "bfloat16", "dp", "of", "8", "ranks", "700", "100", "2.5", "188"]
    assert second.split() == ["1", "broadcast", "–", "–", "20.0", "0", "–", "–"]


def test_many_kinds_are_cut_with_their_number() -> None:
    _, table = collective_table([TOLD] * 40, github=False)
    assert len(table.splitlines()) < 20
    assert "and 28 more" in table
