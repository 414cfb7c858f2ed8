"""report.trace.spreads: a median with what is around it, of many values, few and one."""

from __future__ import annotations

from mlpfusion.records.trace import Spread
from mlpfusion.report.trace.spreads import spread_meaning, spread_text


def test_spread_of_many_few_and_one() -> None:
    assert spread_text(Spread(n=20, median=2.0, low=1.0, high=9.0, p20=1.9, p80=2.2)) == "2.00 [1.90–2.20]"
    assert spread_text(Spread(n=3, median=2.0, low=1.0, high=9.0)) == "2.0 [1.0–9.0]"
    assert spread_text(Spread(n=1, median=2.0, low=2.0, high=2.0)) == "2.00 (one call)"
    assert spread_text(None) == "–"
    assert [spread_meaning(n) for n in (1, 2, 20)] == [
        "of the only call",
        "medians of 2 calls [lowest to highest]",
        "medians of 20 calls [20th to 80th percentile]",
    ]
