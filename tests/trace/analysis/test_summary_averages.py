"""Averages are of the calls that agree; the others are named, and only those that lost events are said to have."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from support.raw import api, event, kernel, launched, step, text

from mlpfusion.report.trace.page import render
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings


def steps(work: list[list[str]]) -> list[Any]:
    """For each list a step that launches these kernels, of 50 each."""
    made = []
    for index, names in enumerate(work):
        start = 10_000 + 1000 * index
        made.append(step(index + 3, start, 900))
        for one, name in enumerate(names):
            made += launched(name, start + 20 + 60 * one, start + 30 + 60 * one, 50, 100 * index + one + 1)
    return made


EIGHT = ["k"] * 8


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ([*EIGHT, "k"], "9 kernels, copies and fills, the others 8"),
        (["k"] * 5, "5 kernels, copies and fills, the others 8"),
        ([], "no device work"),
        ([*EIGHT[:7], "another"], "other kernels"),
    ],
)
@pytest.mark.parametrize("at", [0, 3, 5])
def test_a_step_that_differs_is_named_and_the_others_are_averaged(odd: list[str], reason: str, at: int) -> None:
    work = [EIGHT] * 6
    work[at] = odd
    made = steps(work)
    reading = read(text(made))
    assert (reading.incomplete, reading.analysis.calls, reading.left_out) == (None, 5, 1)
    assert [one.index for one in reading.odd_calls] == [at]
    by_hand = median(one["dur"] for one in made if one["cat"] == "kernel")
    assert [one.time_us for one in reading.analysis.kernels] == [by_hand] * 8
    told = {one.id for one in findings(reading)}
    assert "missing_events" not in told
    page = render([(reading, findings(reading))])
    assert f"\nleft out    ProfilerStep#{at + 3} (number {at + 1}: {reason})\n" in page
    assert "record fewer events" not in page
    assert "no averages are shown" not in page


@pytest.mark.parametrize("name", ['{"device": "cpu", "x": 1}(12): run', 'f("a", "b"): "c"', 'say "hi": {"a": ["b"]}'])
def test_python_frames_that_cannot_be_read_are_no_loss(name: str) -> None:
    made = steps([EIGHT] * 3)
    whole = read(text(made))
    for index in range(3):
        made.append(event("python_function", "@@", 10_000 + 1000 * index, 800))
    reading = read(text(made).replace(b'"@@"', f'"{name}"'.encode()))
    frames = reading.integrity.frames + reading.integrity.repaired
    assert (frames, reading.integrity.dropped, reading.incomplete) == (3, 0, None)
    assert reading.analysis == whole.analysis
    if reading.integrity.frames:
        assert f"{reading.integrity.frames} Python frames could not be read" in reading.notes
    assert "missing_events" not in {one.id for one in findings(reading)}


def replays(counts: list[int], *, names: int = 1) -> list[Any]:
    """For each count a call that launches one graph, of so many kernels."""
    made = []
    for index, count in enumerate(counts):
        start = 10_000 * (index + 1)
        made += [event("user_annotation", "decode", start, 9000), api("cudaGraphLaunch", start + 20, 200, index + 1)]
        made += [kernel(f"k{one % names}", start + 60 + 100 * one, 90, index + 1) for one in range(count)]
    return made


def test_a_replay_that_lost_kernels_is_said_to_have() -> None:
    reading = read(text(replays([40, 40, 33, 40, 40])))
    assert (reading.analysis.calls, reading.incomplete) == (4, None)
    assert [(odd.index, odd.lost) for odd in reading.odd_calls] == [(2, 7)]
    told = {one.id: one for one in findings(reading)}
    assert "decode (number 3) has 33 of 40 kernels" in told["missing_events"].seen
    assert told["missing_events"].share == pytest.approx(1 / 5)


def test_another_graph_lost_nothing() -> None:
    made = replays([40, 40, 33, 40])
    for one in made:
        if one["cat"] == "kernel" and one["args"]["correlation"] == 3:
            one["name"] = "of a larger batch"
    reading = read(text(made))
    assert [(odd.index, odd.lost) for odd in reading.odd_calls] == [(2, 0)]
    assert "missing_events" not in {one.id for one in findings(reading)}


def test_where_no_two_calls_agree_figures_are_of_the_one_of_median_length() -> None:
    made = steps([["a"], ["b"], ["c"]])
    for length, index in ((900, 0), (500, 1), (700, 2)):
        next(one for one in made if one["name"] == f"ProfilerStep#{index + 3}")["dur"] = length
    reading = read(text(made))
    assert [one.name for one in reading.analysis.kernels] == ["c"]
    assert (reading.analysis.calls, reading.left_out, reading.incomplete) == (1, 2, None)


def test_no_line_of_a_finding_is_long() -> None:
    """Sixty copies whose times vary are one finding of a few short lines."""
    made = []
    for index in range(4):
        start = 100_000 + 20_000 * index
        made.append(step(index, start, 19_000))
        for one in range(60):
            name = f"void a_kernel_of_a_long_name_{one}<{'float, ' * 30}int>(int)"
            made += launched(name, start + 20 * one, start + 2000 + 200 * one, 20 + 30 * index, 100 * index + one + 1)
    reading = read(text(made))
    told = {one.id: one for one in findings(reading)}
    assert told["kernel_varies"].seen.startswith("60 of 60 kernel times vary between calls, the widest ")
    assert len(told["kernel_varies"].seen) < 400
    page = render([(reading, findings(reading))]).partition("\nFindings\n")[2]
    assert max(map(len, page.splitlines())) <= 200
    assert "kernel_varies" in page
