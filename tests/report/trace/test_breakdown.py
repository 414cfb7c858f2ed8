"""The lines on where the time went name every category that counts, and communication where there is some."""

from __future__ import annotations

from mlpfusion.records.breakdown import Breakdown, CategoryTime, Split
from mlpfusion.report.trace.breakdown import breakdown_lines

GEMMS = CategoryTime(category="gemm", count=3, us=72.0, share=0.72)
COPIES = CategoryTime(category="copies", count=1, us=0.1, share=0.001)
SPLIT = Split(call=0, length_us=200, compute_us=50, communication_us=100, both_us=20, idle_us=30)


def test_categories_are_shares_of_the_time_of_all_kernels() -> None:
    lines = dict(breakdown_lines(Breakdown(kernel_us=100.0, categories=(GEMMS, COPIES))))
    assert lines == {"time": "GEMM 72%, copies below 0.5% of 100 µs"}


def test_a_sum_of_overlapping_kernels_is_said_to_be_one() -> None:
    lines = dict(breakdown_lines(Breakdown(kernel_us=100.0, categories=(GEMMS,), overlapping=True)))
    assert "at the same time" in lines["time"]


def test_communication_is_shown_beside_compute() -> None:
    lines = dict(breakdown_lines(Breakdown(kernel_us=100.0, categories=(GEMMS,), split=SPLIT)))
    assert lines["step"] == (
        "25% compute, 10% compute and communication at once, 50% communication alone, 15% idle of 200 µs"
    )


def test_nothing_is_said_where_nothing_ran() -> None:
    assert not list(breakdown_lines(Breakdown(kernel_us=0.0, categories=())))
