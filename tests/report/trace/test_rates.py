"""The table of rates has the unit of each, no figure above the card's peak, and an end."""

from __future__ import annotations

import msgspec

from mlpfusion.records.breakdown import Rate
from mlpfusion.report.trace.rates import rate_table

PRODUCT = Rate(operator="aten::mm", unit="FLOP", shape=(64, 32, 16), dtype="bfloat16", count=3, us=56.7, work=65536,
               per_second=6.82e14, peak_share=0.69)  # fmt: skip
COPY = Rate(operator="aten::copy_", unit="bytes", shape=(64, 32), dtype=None, count=1, us=5.0, work=8192,
            per_second=3.1e12)  # fmt: skip


def test_rates_bear_their_unit_and_their_share() -> None:
    _, table = rate_table([PRODUCT, COPY], github=False)
    first, second = (" ".join(line.split()) for line in table.splitlines()[2:])
    assert first == "3 aten::mm 64 x 32 x 16 bfloat16 56.7 682 TFLOP/s 69%"
    assert second == "1 aten::copy_ 64 x 32 – 5.00 3,100 GB/s –"


def test_a_rate_above_the_peak_is_no_figure() -> None:
    above = msgspec.structs.replace(PRODUCT, per_second=2e15, peak_share=2.0, above_peak=True)
    _, table = rate_table([above], github=False)
    assert "error" in table
    assert "above it" in table
    assert "TFLOP/s" not in table


def test_many_shapes_are_cut_with_their_number() -> None:
    _, table = rate_table([PRODUCT] * 50, github=False)
    assert len(table.splitlines()) < 20
    assert "and 38 more" in table
