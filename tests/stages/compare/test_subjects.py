"""What is compared: rows that know nothing have nothing."""

from __future__ import annotations

from mlpfusion.stages.compare.subjects import Subject


def test_a_row_without_clocks_and_facts() -> None:
    row = Subject("eager")
    assert (dict(row.clocks), row.facts, row.tokens, dict(row.versions), row.ran) == ({}, (), None, {}, True)
