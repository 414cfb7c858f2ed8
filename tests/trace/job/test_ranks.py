"""trace.job.ranks: every trace of a source with its place, one after the other, and each failure as itself."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from support.jobs_made import place_in, rank_trace, write_trace

from mlpfusion.trace.job.ranks import Told, Untold, read_ranks

if TYPE_CHECKING:
    from pathlib import Path


def archive(folder: Path, members: dict[str, bytes]) -> str:
    with zipfile.ZipFile(folder / "all.zip", "w") as made:
        for name, data in members.items():
            made.writestr(name, data)
    return str(folder / "all.zip")


def data(rank: int | None = None) -> bytes:
    return json.dumps(rank_trace([50], job=None if rank is None else place_in(rank, 8))).encode()


def test_a_file_is_one_trace(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "rank3.json.gz", rank_trace([50], job=place_in(5, 8)))
    (found,) = read_ranks(str(path))
    assert isinstance(found, Told)
    assert (found.place.rank, found.place.by, found.place.world_size) == (5, "trace", 8)
    assert found.part is None
    assert found.reading.source == str(path)


def test_members_have_the_rank_of_their_own_names(tmp_path: Path) -> None:
    source = archive(tmp_path, {"rank_1/t.json": data(), "x/rank_2.json": data(), "README.md": b"", "c.json": b"{}"})
    found = list(read_ranks(source))
    assert [one.place.rank for one in found if isinstance(one, Told)] == [1, 2]
    assert len(found) == 2  # other JSON beside traces is passed over


def test_a_path_out_of_an_archive_is_a_line_of_its_own(tmp_path: Path) -> None:
    names = ["../../rank_1.json", "/etc/rank_2.json", "a/../../rank_3.json", "..\\rank_4.json", "C:\\rank_5.json"]
    source = archive(tmp_path, {**{name: data() for name in names}, "rank_0.json": data()})
    found = list(read_ranks(source))
    refused = [one for one in found if isinstance(one, Untold)]
    assert [one.rank for one in refused] == [1, 2, 3, 4, 5]
    assert all("is a path out of it" in str(one.error) and one.damaged for one in refused)
    assert [one.place.rank for one in found if isinstance(one, Told)] == [0]
    assert {path.name for path in tmp_path.iterdir()} == {"all.zip"}


@pytest.mark.parametrize(
    ("members", "reason"),
    [({"a.json": b"{}", "b.json": b"[]"}, "no traceEvents"), ({"a.txt": b"x"}, "no member that ends in"), ({}, "none")],
)
def test_an_archive_without_a_trace_gives_one_reason(tmp_path: Path, members: dict[str, bytes], reason: str) -> None:
    (found,) = read_ranks(archive(tmp_path, members))
    assert isinstance(found, Untold)
    assert reason in str(found.error)


@pytest.mark.parametrize(
    ("name", "content", "rank"),
    [
        ("rank_3.json", b"", 3),
        ("rank_3.json.gz", b"\x1f\x8b broken", 3),
        ("x.json", data()[:40], None),
        ("x.json", b"{", None),
    ],
)
def test_what_cannot_be_read_says_so_with_its_rank(tmp_path: Path, name: str, content: bytes, rank: int | None) -> None:
    (tmp_path / name).write_bytes(content)
    (found,) = read_ranks(str(tmp_path / name))
    assert isinstance(found, Untold)
    assert (found.rank, found.damaged) == (rank, True)
    assert "\n" not in str(found.error)


def test_only_other_json_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'{"hidden": 1}')
    (tmp_path / "rank_1.json").write_bytes(b'{"hidden": 1}')
    (other,), (rank,) = (read_ranks(str(tmp_path / name)) for name in ("x.json", "rank_1.json"))
    assert isinstance(other, Untold)
    assert isinstance(rank, Untold)
    assert (other.damaged, rank.damaged) == (False, True)


def two(devices: tuple[Any, Any]) -> dict[str, Any]:
    """Two processes in one file."""
    documents = [rank_trace([50]), rank_trace([50])]
    for number, document in enumerate(documents):
        for entry in document["traceEvents"]:
            entry["pid"] = devices[number] if entry["cat"] == "kernel" else 100 + number
    documents[0]["traceEvents"] += documents[1]["traceEvents"]
    return documents[0]


@pytest.mark.parametrize(("devices", "ranks"), [((0, 1), [0, 1]), ((4, 6), [4, 6]), (("GPU a", "GPU b"), [0, 1])])
def test_a_merged_file_is_a_trace_for_each_process(tmp_path: Path, devices: tuple[Any, Any], ranks: list[int]) -> None:
    path = write_trace(tmp_path / "merged.json", two(devices))
    found = [one for one in read_ranks(str(path)) if isinstance(one, Told)]
    assert [(one.place.rank, one.place.by) for one in found] == [(rank, "device") for rank in ranks]
    assert [one.reading.source for one in found] == [f"{path}, process 100", f"{path}, process 101"]
    assert all(one.reading.analysis.launches.kernels == 2 and one.reading.incomplete is None for one in found)
    assert all("of a merged trace" in one.reading.notes[-1] for one in found)


def test_only_the_rank_that_is_asked_for_is_analysed(tmp_path: Path) -> None:
    source = archive(tmp_path, {f"rank_{number}.json": data(number) for number in range(4)})
    (found,) = read_ranks(source, rank=2)
    assert isinstance(found, Told)
    assert found.place.rank == 2
    merged = str(write_trace(tmp_path / "merged.json", two((0, 1))))
    assert [one.place.rank for one in read_ranks(merged, rank=1) if isinstance(one, Told)] == [1]
    assert list(read_ranks(source, rank=7)) == []
