"""trace.job.merge: one record of the traces of a job: what is compared, what is missing, what does not belong."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs_made import place_in, rank_trace, write_trace

from mlpfusion.records.job import Job
from mlpfusion.trace.job.merge import job_of, us_of
from mlpfusion.trace.job.ranks import read_ranks

if TYPE_CHECKING:
    from pathlib import Path


def made(folder: Path, files: dict[str, Any]) -> Job:
    for name, document in files.items():
        if isinstance(document, dict):
            write_trace(folder / name, document)
        else:
            (folder / name).write_bytes(document)
    return job_of(one for name in files for one in read_ranks(str(folder / name)))


def rank(number: int, world: int | None = 4, **options: Any) -> dict[str, Any]:
    return rank_trace([50, 50], job=None if world is None else place_in(number, world), **options)


def test_ranks_are_in_order_and_each_has_its_times(tmp_path: Path) -> None:
    found = made(tmp_path, {f"t{n}.json": rank(n, product=100.0 + 10 * n) for n in (2, 0, 3, 1)})
    assert [(one.rank, one.by, one.calls, one.kernels) for one in found.ranks] == [(n, "trace", 3, 4) for n in range(4)]
    assert (found.world_size, found.backend, found.missing, found.damaged, found.left_out) == (4, "nccl", (), (), ())
    for one in found.ranks:
        document = json.loads((tmp_path / f"t{one.rank}.json").read_text())
        raw = [entry["dur"] for entry in document["traceEvents"] if "sgemm" in entry["name"]]
        assert us_of(one, "gemm kernels") == pytest.approx(sum(raw) / 3)
        assert us_of(one, "compute") == pytest.approx(sum(raw) / 3)
        assert us_of(one, "communication") == pytest.approx(100)
        parts = sum(us_of(one, name) for name in ("compute", "communication", "both", "idle"))
        assert parts == pytest.approx(us_of(one, "call"), rel=0.02)


@given(st.lists(st.integers(50, 300), min_size=2, max_size=6))
def test_spreads_are_those_of_the_numbers(tmp_path_factory: pytest.TempPathFactory, products: list[int]) -> None:
    folder = tmp_path_factory.mktemp("job")
    found = made(folder, {f"t{n}.json": rank(n, len(products), product=us) for n, us in enumerate(products)})
    (gemm,) = (one for one in found.spreads if one.name == "gemm kernels")
    times = [2 * us for us in products]
    assert (gemm.low, gemm.median, gemm.high) == pytest.approx((min(times), median(times), max(times)))
    assert times[int(gemm.low_rank)] == min(times)
    assert times[int(gemm.high_rank)] == max(times)


def test_what_is_missing_twice_damaged_or_of_another_job(tmp_path: Path) -> None:
    whole = json.dumps(rank(4, 8)).encode()
    files = {
        "rank_0.json": rank(0, 8),
        "rank_1.json": rank(1, 8),
        "rank_3.json": rank(3, 8),
        "again_rank_3.json": rank(3, 8),
        "rank_4.json": whole[: len(whole) // 9],
        "rank_5.json": b"\x1f\x8b broken",
        "rank_7.json": rank(7, 16),
        "config.json": b'{"hidden": 1}',
        "nobody.json": b"no json at all",
    }
    found = made(tmp_path, files)
    assert [one.rank for one in found.ranks] == [0, 1, 3]
    assert (found.world_size, found.missing) == (8, (2, 6, 7))
    assert [(one.source.rpartition("/")[2], one.rank) for one in found.damaged] == [
        ("rank_4.json", 4),
        ("rank_5.json", 5),
        ("nobody.json", None),
    ]
    reasons = {one.source.rpartition("/")[2]: one.reason for one in found.left_out}
    assert set(reasons) == {"again_rank_3.json", "rank_7.json", "config.json"}
    assert "second trace of rank 3" in reasons["again_rank_3.json"]
    assert "a job of 16 ranks, most traces of one of 8" in reasons["rank_7.json"]
    assert "not a Chrome trace" in reasons["config.json"]
    assert not any("\n" in one.reason for one in (*found.damaged, *found.left_out))


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["rank_0.json", "rank_1.json"], ()),
        (["rank_0.json", "rank_3.json"], (1, 2)),
        (["rank_2.json", "rank_3.json"], (0, 1)),
        (["a.json", "b.json"], ()),
        (["rank_2.json", "b.json", "c.json"], ()),  # the two others may be ranks 0 and 1
    ],
)
def test_without_a_world_size_those_up_to_the_highest_are_missed(
    tmp_path: Path, names: list[str], missing: tuple[int, ...]
) -> None:
    assert made(tmp_path, {name: rank(0, None) for name in names}).missing == missing


def test_what_differs_is_noted(tmp_path: Path) -> None:
    files = {f"rank_{n}.json": rank(n, 4) for n in range(3)}
    files["rank_3.json"] = rank(3, 4, gpu="NVIDIA A100", steps=2)
    found = made(tmp_path, files)
    assert "another device (NVIDIA A100) than most (NVIDIA H200): 3" in found.notes
    assert "another number of calls (2) than most (3): 3" in found.notes
    odd = made(tmp_path, {"rank_9.json": rank(9, 4), "rank_0.json": rank(0, 4)})
    assert "not below the world size of 4: 9" in odd.notes
    unknown = made(tmp_path, {"x.json": rank(0, None), "y.json": rank(0, None)})
    assert "rank not known, neither from the trace nor from its name: 2 traces" in unknown.notes


def test_an_incomplete_rank_has_no_times_and_the_others_do(tmp_path: Path) -> None:
    whole = json.dumps(rank(1, 2)).encode()
    found = made(tmp_path, {"rank_0.json": rank(0, 2), "rank_1.json": whole[: whole.rindex(b'"ph"')]})
    assert [bool(one.times) for one in found.ranks] == [True, False]
    assert "cut off" in str(found.ranks[1].incomplete)
    assert found.ranks[1].late is None


def test_nothing_is_no_job() -> None:
    assert job_of(()) == Job(ranks=())
