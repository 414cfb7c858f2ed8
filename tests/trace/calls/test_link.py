"""What links work to the host in a reading: arrows, ranks, threads, times, first calls and the host's own line."""

from __future__ import annotations

import time

from support.readings import many, of, without
from support.timeline import GEMM, Timeline


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


def test_durations_of_zero_and_less_are_counted() -> None:
    made = many()
    kernels = [entry for entry in made.entries if entry["cat"] == "kernel"]
    kernels[0]["dur"], kernels[1]["dur"] = 0, -3
    found = of(made)
    assert (found.integrity.zero, found.integrity.negative, found.integrity.impossible) == (1, 1, 2)
    assert found.incomplete is None
    assert any("1 device event of duration 0" in note for note in found.notes)


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


def test_one_call_of_many_thousand_launches_is_no_quadratic_matter() -> None:
    """10 thousand launches in one call: 2 s; work that grows with their square would take minutes."""
    made = without(many(2000), "user_annotation")
    begin = time.process_time()
    found = of(made)
    assert time.process_time() - begin < 60
    assert (found.call.by, len(found.analysis.kernels)) == ("whole_trace", 10_000)
    assert found.timeline_limit == len(found.timeline)
