"""trace.diff.jobs: medians over the ranks that both jobs have, and each such rank."""

from __future__ import annotations

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.records.job import Job, Rank, Refused
from mlpfusion.records.trace import Share
from mlpfusion.trace.diff.jobs import diff_jobs

CALLS = st.dictionaries(st.integers(0, 12), st.floats(1, 1000), min_size=1, max_size=8)


def job(calls: dict[int, float], gpu: str = "NVIDIA H200", known: bool = True) -> Job:
    ranks = [
        Rank(
            source=f"{number}.json",
            rank=number if known else None,
            by="trace",
            gpu=gpu,
            times=(Share(name="call", us=us), Share(name="compute", us=us / 2)),
        )
        for number, us in sorted(calls.items())
    ]
    return Job(ranks=tuple(ranks))


@given(CALLS, CALLS)
def test_the_same_ranks_are_compared(a: dict[int, float], b: dict[int, float]) -> None:
    found = diff_jobs(job(a), job(b, "NVIDIA A100"), labels=("before", "after"))
    both = sorted(a.keys() & b.keys())
    assert [(one.rank, one.a_us, one.b_us) for one in found.ranks] == [(rank, a[rank], b[rank]) for rank in both]
    over_a, over_b = (([side[rank] for rank in both] if both else list(side.values())) for side in (a, b))
    assert [(one.name, one.a_us, one.b_us) for one in found.times] == [
        ("call", median(over_a), median(over_b)),
        ("compute", median(us / 2 for us in over_a), median(us / 2 for us in over_b)),
    ]
    assert (found.a_devices, found.b_devices) == (("NVIDIA H200",), ("NVIDIA A100",))
    assert any("no rank is known in both" in reason for reason in found.reasons) == (not both)


def test_what_is_not_compared_is_said() -> None:
    a, b = job({0: 1.0, 1: 2.0, 2: 3.0}), job({1: 2.0, 5: 4.0})
    damaged = Job(ranks=b.ranks, damaged=(Refused(source="x", rank=9, reason="empty"),))
    assert diff_jobs(a, damaged, labels=("a", "b")).reasons == (
        "only in a, or incomplete in one: ranks 0, 2",
        "only in b, or incomplete in one: ranks 5",
        "b: 1 files are damaged or left out, which `read` names",
    )
    assert diff_jobs(Job(ranks=()), a, labels=("a", "b")).times == ()
