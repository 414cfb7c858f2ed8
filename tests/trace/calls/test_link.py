"""What links work to the host in a reading: arrows, ranks, threads, times, first calls and the host's own line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from support.timeline import GEMM, Timeline

from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings

if TYPE_CHECKING:
    from mlpfusion.records.trace import Reading


def of(made: Any, **options: Any) -> Reading:
    return read(made.text().encode(), **options)


def many(calls: int = 3, name: str = "mlpfusion.call", base: int = 0) -> Any:
    made = Timeline(base)
    for index in range(calls):
        made.mlp(1000 * (index + 1), name=name)
    return made


def without(made: Any, *categories: str) -> Any:
    made.entries = [entry for entry in made.entries if entry["cat"] not in categories]
    return made


def test_arrows_link_what_has_no_correlation() -> None:
    made = many()
    arrows = []
    for entry in made.entries:
        number = entry["args"].pop("correlation", None)
        if number is not None:
            phase = "f" if entry["cat"] == "kernel" else "s"
            place = {"pid": entry["pid"], "tid": entry["tid"], "ts": entry["ts"], "dur": 0}
            arrows.append({"ph": phase, "id": number, "cat": "ac2g", "name": "ac2g", **place})
    assert of(made).integrity.orphans == 15
    made.entries += arrows
    found = of(made)
    assert found.analysis == of(many()).analysis
    assert (found.integrity.linked_by_flow, found.integrity.orphans) == (15, 0)
    only_ends = many()
    for entry in only_ends.entries:
        if entry["cat"] == "kernel":
            del entry["args"]["correlation"]
    only_ends.entries += [arrow for arrow in arrows if arrow["ph"] == "f"]
    assert of(only_ends).analysis == found.analysis


def merged(*, backlog: int = 0, devices: tuple[int, int] = (0, 1)) -> Any:
    """The traces of two ranks in one file: same correlations, and calls of the second one only without a name."""
    ranks = []
    for number, device in enumerate(devices):
        rank = many()
        for index in range(backlog):  # launches before the calls, whose correlations the other rank does not have
            correlation = 100 + 50 * number + index
            rank.api("cudaLaunchKernel", 900 + index, correlation=correlation)
            rank.device("earlier", 950 + index, 1, correlation)
        for entry in rank.entries:
            entry["pid"] = 10 + number
            if entry["cat"] == "kernel":
                entry["pid"], entry["dur"] = device, entry["dur"] + 3 * number
        ranks.append(without(rank, "user_annotation") if number else rank)
    ranks[0].entries += ranks[1].entries
    return ranks[0]


def test_ranks_of_a_merged_trace_are_told_apart_by_their_devices() -> None:
    found, alone = of(merged(backlog=1)), of(many())
    assert found.analysis.kernels == alone.analysis.kernels
    assert (found.incomplete, found.analysis.faults, found.integrity.orphans) == (None, (), 0)
    assert [use.device for use in found.streams] == ["0"]
    assert sorted(tally.count for tally in found.between_calls) == [2, 3, 3, 9]
    graph_of_two = many()  # one process that uses two devices, and one correlation for work on both
    graph_of_two.device(GEMM, 1090, 5, 1).device(GEMM, 2090, 5, 6).device(GEMM, 3090, 5, 11)
    assert of(graph_of_two).incomplete is None


@pytest.mark.parametrize("case", [{}, {"backlog": 1, "devices": (0, 0)}])
def test_ranks_that_cannot_be_told_apart_make_a_trace_incomplete(case: dict[str, Any]) -> None:
    found = of(merged(**case))
    said = "30 device events with the correlation of launches in several processes; ambiguous"
    assert found.incomplete == said
    assert said in found.analysis.faults
    assert "missing_events" in {finding.id for finding in findings(found)}


def test_durations_of_zero_and_less_are_counted() -> None:
    made = many()
    kernels = [entry for entry in made.entries if entry["cat"] == "kernel"]
    kernels[0]["dur"], kernels[1]["dur"] = 0, -3
    found = of(made)
    assert (found.integrity.zero, found.integrity.negative, found.integrity.impossible) == (1, 1, 2)
    assert found.incomplete is None
    assert any("1 device event of duration 0" in note for note in found.notes)


def test_a_wider_first_call_is_shown_apart() -> None:
    made = many(4)
    assert of(made).first_call is None
    made.entries[0]["dur"] = 813
    first = of(made).first_call
    assert first is not None
    assert (first.host_us, first.rest_host_us, first.kernel_us, first.rest_kernel_us) == (813, 100, 25, 25)
    assert of(made).host_spread is not None


def test_launches_of_the_autograd_thread_belong_to_the_call_that_spans_them() -> None:
    made = Timeline()
    for index in range(1, 4):
        start = 1000 * index
        made.mlp(start).entries[-16]["dur"] = 400
        made.op("autograd::engine::evaluate_function: MmBackward0", start + 110, 90, tid=2)
        made.op("aten::mm", start + 120, 10, tid=2).launch(GEMM, start + 122, start + 180, 5, tid=2)
    found = of(made)
    assert found.analysis.launches.kernels == 6
    assert {event.thread for event in found.timeline} == {0, 1}


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


def test_one_call_of_many_thousand_launches_is_no_quadratic_matter() -> None:
    """10 thousand launches in one call: 2 s; work that grows with their square would take minutes."""
    made = without(many(2000), "user_annotation")
    begin = time.process_time()
    found = of(made)
    assert time.process_time() - begin < 60
    assert (found.call.by, len(found.analysis.kernels)) == ("whole_trace", 10_000)
    assert found.timeline_limit == len(found.timeline)
