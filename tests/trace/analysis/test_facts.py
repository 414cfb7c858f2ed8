"""Facts of calls beside their kernels: first calls, timelines, API calls, overhead, regions."""

from __future__ import annotations

from support.readings import many, of
from support.timeline import GEMM, Timeline


def test_a_wider_first_call_is_shown_apart() -> None:
    made = many(4)
    assert of(made).first_call is None
    made.entries[0]["dur"] = 813
    first = of(made).first_call
    assert first is not None
    assert (first.host_us, first.rest_host_us, first.kernel_us, first.rest_kernel_us) == (813, 100, 25, 25)
    assert of(made).host_spread is not None


def test_the_timeline_has_depth_own_time_and_launches() -> None:
    made = Timeline()
    for index in range(1, 4):
        start = 1000 * index
        made.call(start, 100).op("aten::linear", start + 10, 50).op("aten::t", start + 12, 5)
        made.op("aten::mm", start + 20, 30).launch(GEMM, start + 25, start + 60, 5)
    shown = [(e.name, e.depth, e.start_us, e.duration_us, e.self_us, e.launches) for e in of(made).timeline]
    assert shown == [
        ("mlpfusion.call", 0, 0, 100, 50, 1),
        ("aten::linear", 1, 10, 50, 15, 1),
        ("aten::t", 2, 12, 5, 5, 0),
        ("aten::mm", 2, 20, 30, 29, 1),
        ("cudaLaunchKernel", 3, 25, 1, 1, 1),
    ]


def test_api_calls_and_work_between_calls_are_tallied() -> None:
    made = many()
    for index in range(1, 4):
        made.api("cudaDeviceSynchronize", 1000 * index + 60, 7 * index)
        made.launch(
            "Memcpy HtoD (Pageable -> Device)", 1000 * index + 500, 1000 * index + 520, 8, api="cudaMemcpyAsync"
        )
    found = of(made)
    assert [(tally.name, tally.count, tally.total_us, tally.longest_us) for tally in found.apis] == [
        ("cudaDeviceSynchronize", 3, 42.0, 21.0),
        ("cudaLaunchKernel", 15, 15.0, 1.0),
    ]
    assert [(tally.name, tally.count, tally.total_us) for tally in found.between_calls] == [
        ("Memcpy HtoD (Pageable -> Device)", 3, 24.0)
    ]


def test_overhead_is_shown_apart() -> None:
    """P10."""
    plain = of(many())
    made = (
        many().add("overhead", "Lazy Function Loading", 1003, 40, tid=0).add("overhead", "Buffer Flush", 500, 9, tid=0)
    )
    made.entries[-1]["pid"] = made.entries[-2]["pid"] = -1
    found = of(made)
    assert found.analysis == plain.analysis
    assert [(tally.name, tally.total_us) for tally in found.overhead] == [("Lazy Function Loading", 40.0)]
    assert [(tally.name, tally.count) for tally in found.overhead_outside] == [("Buffer Flush", 1)]


def test_regions_are_told_by_their_ids() -> None:
    """P13, C5."""
    made = Timeline()
    for index, name in enumerate(("0/0", "0/0", "0/1", "0/1"), 1):
        made.mlp(1000 * index).op(f"Torch-Compiled Region: {name}", 1000 * index, 90)
    found = of(made)
    assert [(each.id, each.calls, each.first, each.last) for each in found.regions] == [
        ("0/0", 2, 0, 1),
        ("0/1", 2, 2, 3),
    ]
    assert found.compiling == ()
