"""Launches between the begin and the end of a capture run nothing and lost nothing."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw import api, kernel, launched, step, text

from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings


def capturing(maker: str, *, ends: bool = True, beside: int = 0) -> list[Any]:
    """Two steps, each of a kernel and a capture of 30 launches; `beside` launches on another thread lose theirs."""
    made = []
    for index in range(2):
        start, number = 10_000 * (index + 1), 1000 * index + 1
        made += [step(index, start, 5000), *launched("k", start + 10, start + 20, 30, number)]
        made.append(api(f"{maker}StreamBeginCapture", start + 100, 3))
        made += [api(f"{maker}LaunchKernel", start + 200 + 10 * one, 4, number + 1 + one) for one in range(30)]
        made += [
            api(f"{maker}LaunchKernel", start + 204 + 10 * one, 4, number + 100 + one, tid=2) for one in range(beside)
        ]
        if ends:
            made.append(api(f"{maker}StreamEndCapture", start + 1000, 3))
        made += [api(f"{maker}GraphLaunch", start + 1100, 9, number + 500), kernel("g", start + 1200, 90, number + 500)]
    return made


@pytest.mark.parametrize("maker", ["cuda", "hip"])
def test_captured_launches_are_counted_and_none_is_lost(maker: str) -> None:
    made = capturing(maker)
    reading = read(text(made))
    by_hand = sum(one["name"] == f"{maker}LaunchKernel" and one["ts"] % 10_000 >= 200 for one in made)
    assert (reading.integrity.captured, reading.integrity.lost, reading.incomplete) == (by_hand, 0, None)
    assert reading.analysis.calls == 2
    told = {one.id: one for one in findings(reading)}
    assert told["graph_capture"].seen == "60 launches captured into a graph in 2 calls"
    assert not {"missing_events", "gpu_bound", "overhead_bound", "bound_unclear"} & set(told)
    assert any(note.startswith("a capture: 60 launches") for note in reading.notes)


def test_launches_of_another_thread_are_not_captured() -> None:
    reading = read(text(capturing("cuda", beside=5)))
    assert (reading.integrity.captured, reading.integrity.lost) == (60, 10)


def test_a_replay_is_no_capture() -> None:
    made = [one for one in capturing("cuda") if "Capture" not in one["name"]]
    assert read(text(made)).integrity.captured == 0


def test_a_capture_in_a_call_that_is_left_out_says_nothing_of_the_others() -> None:
    """The first step captures, the others replay: what limits a replay is said."""
    made = [step(0, 10_000, 3000), api("cudaStreamBeginCapture", 10_010, 5)]
    made += [api("cudaLaunchKernel", 10_030 + 20 * one, 4, 500 + one) for one in range(20)]
    made.append(api("cudaStreamEndCapture", 10_700, 10))
    for index in range(1, 5):
        start = 10_000 * (index + 1)
        made += [step(index, start, 500), api("cudaGraphLaunch", start + 20, 20, 900 + index)]
        made += [kernel(f"g{one}", start + 60 + 20 * one, 20, 900 + index) for one in range(20)]
    reading = read(text(made))
    assert (reading.integrity.captured, reading.left_out) == (0, 1)
    assert "a capture: 20 launches recorded into a graph, which runs nothing yet" in reading.notes
    told = {one.id for one in findings(reading)}
    assert "gpu_bound" in told
    assert "graph_capture" not in told
