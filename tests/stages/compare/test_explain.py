"""What a comparison's changes point to."""

from __future__ import annotations

from typing import Any

from mlpfusion.records.comparison import ClockChange, Comparison, FactChange, GroupChange, RowChange
from mlpfusion.stages.compare import explain
from mlpfusion.stages.compare.facts import KERNELS
from mlpfusion.stages.compare.subjects import Subject

OTHER_KERNELS = FactChange(name=KERNELS, baseline="a", candidate="b", worse=False)


def row(name: str, word: Any = "same", *facts: FactChange) -> RowChange:
    return RowChange(baseline=name, candidate=name, word=word, facts=facts)


def notes(*rows: RowChange, own: float = 1.0) -> tuple[str, ...]:
    times = (ClockChange(clock="graph_us", baseline_us=100.0, candidate_us=100.0 / own, ratio=own),)
    group = GroupChange(title="it", rows=rows, control="eager", control_times=times)
    made = Comparison(schema=1, kind="comparison", mlpfusion="0", baseline="a", candidate="b", threshold=0.01,
                      confidence=0.99, groups=(group,))  # fmt: skip
    return explain.explained(made, no_control=False, exact=False).groups[0].notes


def test_nothing_to_say() -> None:
    assert notes(row("eager", None), row("triton"), row("fused")) == ()


def test_one_row_alone() -> None:
    assert notes(row("eager", None), row("triton", "slower"), row("fused")) == (
        "triton alone is slower: the backend, not the machine",
    )


def test_all_rows() -> None:
    assert notes(row("triton", "slower"), row("fused", "slower")) == ("all rows are slower: look at eager first",)


def test_the_control_moved() -> None:
    (said,) = notes(row("eager", None), row("triton"), own=0.9)
    assert said == "eager itself changed by graph_us, and 0 of 0 other rows with it"
    (said,) = notes(row("eager", None, OTHER_KERNELS), row("triton"), own=0.9)
    assert "so did its kernels" in said


def test_a_row_with_other_versions_or_kernels() -> None:
    a, b = Subject("liger", versions={"liger-kernel": "0.8"}), Subject("liger", versions={"liger-kernel": "0.9"})
    assert explain.of_row(row("liger"), a, b).note == "liger-kernel 0.8 → 0.9"
    assert (
        explain.of_row(row("liger", "same", OTHER_KERNELS), a, a).note
        == "its kernels changed: another choice of a tuner or a library"
    )
    assert (
        explain.of_row(row("liger", "same", OTHER_KERNELS), a, b).note == "liger-kernel 0.8 → 0.9; its kernels changed"
    )
    assert explain.of_row(row("liger"), a, a).note is None
    said = "other kernels in 2 of the candidate's processes: its spread is that of two choices"
    assert explain.of_row(row("liger"), a, a._replace(others=2)).note == said
    said = "the candidate was timed with other kernels than those whose facts it tells"
    assert explain.of_row(row("liger"), a, a._replace(raced_others=True)).note == said
