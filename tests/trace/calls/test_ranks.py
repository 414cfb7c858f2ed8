"""Ranks of a merged trace are told apart by the devices that they use."""

from __future__ import annotations

from typing import Any

import pytest
from support.readings import many, of, without
from support.timeline import GEMM

from mlpfusion.trace.findings.host import findings


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
