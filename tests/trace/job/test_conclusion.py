"""trace.job.conclusion: who is slow, who is late and why, with numbers; and nothing of ranks that are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.jobs_made import place_in, rank_trace, write_trace

from mlpfusion.trace.job.merge import job_of
from mlpfusion.trace.job.ranks import read_ranks

if TYPE_CHECKING:
    from pathlib import Path


def said(folder: Path, ranks: list[dict[str, Any]]) -> list[str]:
    for number, options in enumerate(ranks):
        durations = options.pop("all_reduces", [50, 50])
        write_trace(folder / f"{number}.json", rank_trace(durations, job=place_in(number, len(ranks)), **options))
    files = (folder / f"{number}.json" for number in range(len(ranks)))
    return list(job_of(one for file in files for one in read_ranks(str(file))).summary)


@pytest.mark.parametrize("ranks", [2, 8, 40])
def test_ranks_that_are_alike(tmp_path: Path, ranks: int) -> None:
    text = said(tmp_path, [{} for _ in range(ranks)])
    assert text[0].startswith("all ranks take alike: 950 µs a call")
    assert text[1] == "no rank is late by itself: others wait for one at most 0 µs a call (0%)"
    assert not any("arrives last" in line for line in text)


@pytest.mark.parametrize("ranks", [2, 3, 8, 40])
def test_a_straggler_whose_kernels_are_slow(tmp_path: Path, ranks: int) -> None:
    """Its products take 60 µs longer, so that the others wait in the all-reduces for as long."""
    options: list[dict[str, Any]] = [{"all_reduces": [110, 110]} for _ in range(ranks)]
    options[1] = {"all_reduces": [50, 50], "product": 160.0}
    text = said(tmp_path, options)
    (late,) = (line for line in text if "arrives last" in line)
    assert late.startswith("rank 1 arrives last at 6 of 6 collectives: the first to arrive waits 120 µs a call (13%)")
    assert late.endswith("its gemm kernels take 120 µs longer than the others' median")


def test_a_straggler_whose_host_is_late(tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [{"all_reduces": [110, 110]} for _ in range(4)]
    options[2] = {"all_reduces": [50, 50]}
    (late,) = (line for line in said(tmp_path, options) if "arrives last" in line)
    assert late.startswith("rank 2 arrives last at 6 of 6")
    assert late.endswith("its kernels take as long as those of others, so that it launches late")


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_who_is_late_in_turn_is_no_straggler(tmp_path: Path, ranks: int) -> None:
    """Each rank is late at one collective of its own, by as much."""
    options: list[dict[str, Any]] = [
        {"product": 20.0, "all_reduces": [50.0 if at == rank else 80.0 for at in range(ranks)]} for rank in range(ranks)
    ]
    text = said(tmp_path, options)
    assert not any("arrives last" in line for line in text)
    assert any("no rank is late by itself: others wait for one at most 30.0 µs a call (3%)" in line for line in text)


def test_one_late_collective_of_many_is_enough(tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [{"product": 20.0, "all_reduces": [60.0] * 8} for _ in range(4)]
    options[3] = {"product": 20.0, "all_reduces": [60.0] * 7 + [10.0]}
    (late,) = (line for line in said(tmp_path, options) if "arrives last" in line)
    assert late.startswith("rank 3 arrives last at 3 of 24 collectives: the first to arrive waits 50.0 µs a call (5%)")


def test_a_slow_rank(tmp_path: Path) -> None:
    assert said(tmp_path, [{}, {}, {"product": 460.0}])[0].startswith(
        "slowest is rank 2: 1040 µs a call, the median 950"
    )


def test_exposed_communication_has_its_range(tmp_path: Path) -> None:
    text = said(tmp_path, [{"all_reduces": [95, 95]}, {"all_reduces": [190, 190]}])
    assert text[-1] == (
        "communication while nothing else runs: 20% of a call on rank 0 to 40% on rank 1, median 285 µs"
    )


def test_one_rank_says_nothing_of_others(tmp_path: Path) -> None:
    assert [line for line in said(tmp_path, [{}]) if "rank" in line and "communication" not in line] == []
