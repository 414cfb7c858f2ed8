"""The lines on where the time went name every category that counts, and communication where there is some."""

from __future__ import annotations

import msgspec
import pytest

from mlpfusion.records.breakdown import Breakdown, CategoryTime, IdleCauses, MLPShare, Queue, Split
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


MLPS = MLPShare(layers=6, forward_us=38.0, kernel_share=0.5, call_share=0.38)


def mlp(split: Split | None = None, what: str = "step", **changes: object) -> str:
    share = msgspec.structs.replace(MLPS, **changes)
    return dict(breakdown_lines(Breakdown(kernel_us=76.0, categories=(), mlp=share, split=split), what))["MLP"]


def test_the_share_of_the_mlps_comes_with_what_a_faster_backend_gains() -> None:
    assert mlp() == (
        "the 6 MLPs are 38% of this step (50% of its kernels' time); a backend 1.2x faster there gains 6.8% at most"
    )
    assert mlp(what="call", layers=1).startswith("the MLP is 38% of this call (")


@pytest.mark.parametrize(
    ("backward_layers", "text"),
    [(6, "with the backward)"), (0, "is not recognised"), (2, "backward of 2 of 6")],
)
def test_the_backward_is_said_to_be_in_it_or_not(backward_layers: int, text: str) -> None:
    assert text in mlp(backward_layers=backward_layers, backward_us=1.0)


def test_where_the_device_idles_faster_kernels_gain_less() -> None:
    assert "the device idles 15%, and kernels hidden behind the host gain nothing" in mlp(SPLIT)
    busy = msgspec.structs.replace(SPLIT, compute_us=79, idle_us=1)
    assert "idles" not in mlp(busy)


def test_the_causes_that_occur_are_shares_of_the_call() -> None:
    idle = IdleCauses(idle_us=30, host_waits_us=0, host_late_us=20, stream_us=0, short_us=0.5, unknown_us=9.5)
    lines = dict(breakdown_lines(Breakdown(kernel_us=0, categories=(), split=SPLIT, idle=idle)))
    assert lines["idle"] == "10% next work launched late, below 0.5% gaps below 5 µs, 5% unknown"


def test_the_queue_names_the_work_that_waited_longest() -> None:
    queue = Queue(launches=9, delay_us=7.2, worst_us=80.1, worst="Memset (Device)", queued=1.5, most_queued=6)
    lines = dict(breakdown_lines(Breakdown(kernel_us=0, categories=(), queue=queue)))
    assert lines["queue"] == (
        "7.20 µs from launch to start, at worst 80.1 (Memset (Device)); 1.5 queued at a launch, at most 6"
    )
