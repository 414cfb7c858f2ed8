"""trace.job.place: the rank is the trace's own word, else its name's, else unknown; other numbers are no ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.job.place import Place, one_job, place, rank_in
from mlpfusion.trace.read.header import Facts

WORDED = [
    "rank{}", "rank_{}", "Rank-{}", "trace_rank{}", "my.rank={}.x", "dp0_pp0_tp0_rank{}", "traceRank{}", "RANK{}",
    "node1_rank{}", "worker{}", "worker_{}", "1718000000.5-TP-{}", "rank{}_trace", "global_rank_{}", "llama-3_rank{}",
]  # fmt: skip
BARE = ["{}", "trace_{}", "trace.{}", "h200-{}", "profile_{}", "out_rank.{}", "train_{}"]
SUFFIXES = [".json", ".json.gz", ".pt.trace.json", ".pt.trace.json.gz", ".trace"]


@given(st.sampled_from(WORDED), st.sampled_from(SUFFIXES), st.integers(0, 99_999))
def test_a_word_for_rank_in_the_name(form: str, suffix: str, rank: int) -> None:
    assert rank_in(form.format(rank) + suffix) == (rank, "name")
    assert rank_in(f"logs/2024-05-01/{form.format(rank)}{suffix}") == (rank, "name")
    if "TP" not in form:
        assert rank_in(f"logs/{form.format(rank)}/trace{suffix}") == (rank, "name")


@given(st.sampled_from(BARE), st.sampled_from(SUFFIXES), st.integers(0, 99_999))
def test_a_number_at_the_end_of_the_name(form: str, suffix: str, rank: int) -> None:
    found, by = rank_in(form.format(rank) + suffix)
    assert (found, by) == (rank, "name" if "rank" in form else "number")


@pytest.mark.parametrize("form", ["rank{}", "gpu-7_rank_{}"])
def test_a_worker_of_the_trace_handler_that_is_named_by_its_rank(form: str) -> None:
    assert rank_in(f"{form.format(5)}.1718000000000000000.pt.trace.json.gz") == (5, "name")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "trace.json",
        "gpu-node-07_31245.1718000000000000000.pt.trace.json",  # HOST_PID.TIME
        "gpu-node-07_3.1718000000000.pt.trace.json.gz",
        "h200_eager.json.gz",
        "gpt2.json",
        "local_rank3.json",
        "localrank3.json",
        "step_10.json",
        "iteration-5.json.gz",
        "batch_8.json",
        "bs_64.json",
        "trace_2024-05-01.json",
        "trace_20240501.json",
        "rank0_of_rank8.json",
        "crank3.json",
        "x-TP-1-PP-2.json",
        "libkineto_trace_123456789.json",
    ],
)
def test_what_is_no_rank(name: str) -> None:
    assert rank_in(name) == (None, "unknown")


def test_the_trace_goes_before_its_name() -> None:
    assert place(Facts(None, 3, 8, "nccl"), "rank5.json") == Place(3, "trace", 8, "nccl")
    assert place(Facts(), "rank5.json") == Place(5, "name")
    assert place(Facts(None, None, 8, None), "a.json") == Place(None, "unknown", 8)


@pytest.mark.parametrize(
    ("names", "one"),
    [
        (["rank0.json", "rank1.json"], True),
        (["rank3.json", "rank7.json", "notes.json"], True),
        (["a/rank0.json", "b/rank0.json"], False),
        (["eager.json", "compile.json"], False),
        (["t_0.json", "t_1.json"], True),
        (["llama-2.json", "llama-3.json"], False),
        (["rank0.json"], False),
        ([], False),
    ],
)
def test_which_files_are_one_job(names: list[str], one: bool) -> None:
    assert one_job(place(Facts(), name) for name in names) is one
