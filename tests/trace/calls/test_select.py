"""trace.select: what a wrong name of a call is told."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw import api, event, kernel, launched, step, text
from support.timeline import Timeline

from mlpfusion.errors import UsageError
from mlpfusion.report.trace.page import render
from mlpfusion.trace.analysis.summary import read


def asked(made: Any, name: str = "nope") -> str:
    with pytest.raises(UsageError) as caught:
        read(made.text().encode(), call=name)
    return str(caught.value)


def steps(*names: str) -> Any:
    made = Timeline()
    for index in range(12):
        made.mlp(1000 * (index + 1), name=f"ProfilerStep#{index}")
    for index, name in enumerate(names):
        made.call(20_000 + index, 1, name)
    return made


def test_steps_are_listed_as_one_name() -> None:
    assert asked(steps()) == "the trace has no annotation named 'nope'; there are 'ProfilerStep' (12)"
    assert asked(steps("mine")).endswith("there are 'mine' (1), 'ProfilerStep' (12)")
    assert read(steps().text().encode(), call="ProfilerStep").call.count == 12


def test_steps_are_listed_however_many_names_there_are() -> None:
    assert asked(steps(*"abcdefg")).endswith("'d' (1), 'e' (1), 'ProfilerStep' (12) and 2 more")


# ---- what is chosen


def of(made: list[Any], **options: Any) -> Any:
    return read(text(made), **options)


def training(inner: str, *, count: int, runs: float, steps: int = 3, outer: float = 400) -> list[Any]:
    """Steps of 10,000 with 10 kernels of `outer`, and `count` annotations each around one kernel of `runs`."""
    made, number = [], 0
    for index in range(steps):
        start = 100_000 + 10_000 * index
        made.append(step(index, start, 9900))
        for one in range(10):
            number += 1
            made += launched("k", start + 20 + 20 * one, start + 100 + 400 * one, outer, number)
        for one in range(count):
            number += 1
            made.append(event("user_annotation", inner, start + 500 + 40 * one, 30))
            made += launched("k", start + 510 + 40 * one, start + 5000 + 60 * one, runs, number)
    return made


@pytest.mark.parametrize(("inner", "count", "runs"), [("rope", 1, 3), ("rmsnorm", 40, 10), ("attention", 2, 900)])
def test_an_annotation_of_little_of_the_work_does_not_stand_for_the_steps(inner: str, count: int, runs: float) -> None:
    made = training(inner, count=count, runs=runs)
    found = of(made).call
    assert (found.by, found.name, found.count) == ("profiler_step", "ProfilerStep", 3)
    assert "no repeated annotation of the user's holds 80%" in found.reason
    kernels = [one for one in made if one["cat"] == "kernel"]
    inside = 3 * count * runs / sum(one["dur"] for one in kernels)
    (other,) = found.others
    assert (other.name, other.count) == (inner, 3 * count)
    assert other.share == pytest.approx(inside)
    assert of(made, call=inner).call.count == 3 * count
    page = render([(of(made), ())])
    assert f"\nothers      '{inner}' ({3 * count} of them, " in page
    assert "--call NAME" in page


def test_an_annotation_of_most_of_the_work_does() -> None:
    found = of(training("forward", count=1, runs=4000, outer=40)).call
    assert (found.by, found.name, found.count) == ("annotation", "forward", 3)
    assert found.reason == "it is the innermost repeated annotation that holds most of the work"
    assert [one.name for one in found.others] == ["ProfilerStep"]


def test_without_steps_a_part_does_not_stand_for_the_annotation_around_it() -> None:
    made = training("rope", count=2, runs=5)
    for one in made:
        if one["name"].startswith("ProfilerStep"):
            one["name"] = "train_step"
    assert of(made).call.name == "train_step"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([f"execute_context_{i}({i})_generation_2({i})" for i in range(6)], "execute_context_*(*)_generation_*(*)"),
        (["Prefill[bs=1 toks=512]", "Prefill[bs=2 toks=768]", "Prefill[bs=3 toks=2]"], "Prefill[bs=* toks=*]"),
        (["iteration 12", "iteration 13", "iteration 14"], "iteration *"),
        (["step7", "step8", "step9"], "step*"),
        (["layer.3"] * 4, "layer.3"),
    ],
)  # fmt: skip
def test_names_that_differ_in_numbers_are_one_name(names: list[str], expected: str) -> None:
    made = []
    for index, name in enumerate(names):
        made.append(event("user_annotation", name, 1000 * (index + 1), 500))
        made += launched("k", 1000 * (index + 1) + 10, 1000 * (index + 1) + 20, 30, index + 1)
    found = of(made)
    assert (found.call.name, found.call.count, found.analysis.calls) == (expected, len(names), len(names))
    assert of(made, call=expected).call.count == len(names)
    assert of(made, call=names[0]).call.count == names.count(names[0])


def test_numbers_that_are_part_of_a_word_tell_names_apart() -> None:
    made = []
    for index, name in enumerate(["mm_fp16", "mm_fp8", "mm_fp16", "mm_fp8", "mm_fp16"]):
        made.append(event("user_annotation", name, 1000 * (index + 1), 500))
        made += launched("k", 1000 * (index + 1) + 10, 1000 * (index + 1) + 20, 30, index + 1)
    found = of(made).call
    assert (found.name, found.count) == ("mm_fp16", 3)
    assert [(one.name, one.count) for one in found.others] == [("mm_fp8", 2)]


def steps_apart(gap: float) -> list[Any]:
    made = []
    for index in range(4):
        start = 1000 + index * (500 + gap)
        made.append(step(index, start, 500))
        made += launched("k", start + 50, start + 60, 30, index + 1)
    return made


@pytest.mark.parametrize(("gap", "rounded"), [(-0.4, 3), (-0.999, 3), (0, 0), (3, 0)])
def test_steps_that_overlap_by_less_than_a_microsecond_are_all_kept(gap: float, rounded: int) -> None:
    found = of(steps_apart(gap))
    assert (found.call.count, found.analysis.calls, found.call.rounded) == (4, 4, rounded)
    assert any("as the clock rounds" in note for note in found.notes) == bool(rounded)


def test_steps_that_overlap_by_more_are_left_out_and_said() -> None:
    found = of(steps_apart(-100))
    assert (found.call.count, found.call.overlapping) == (2, 2)
    assert any("2 annotations of the calls' name overlapping a call" in note for note in found.notes)


@pytest.mark.parametrize("pids", [(200, 100), (1, 31337), ("python", 7)])
def test_annotations_in_another_process_than_their_operators_delimit_these(pids: tuple[Any, Any]) -> None:
    made = []
    for index in range(3):
        start = 1000 * (index + 1)
        made.append(step(index, start, 900, pid=pids[0]))
        made.append(event("cpu_op", "aten::mm", start + 100, 50, pid=pids[1], tid=3))
        made.append(api("cuLaunchKernel", start + 120, 10, index + 1, pid=pids[1], tid=3))
        made.append(kernel("k", start + 140, 30, index + 1))
    found = of(made)
    assert (found.call.count, found.analysis.launches.runtime_launches) == (3, {"cuLaunchKernel": 1})
    assert found.analysis.pre_ops.time_to_first_launch == 120
    assert found.analysis.pre_ops.dispatch == 20
    assert any(f"process {pids[1]}" in note for note in found.notes)
