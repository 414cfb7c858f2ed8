"""trace.job.sources: a directory and a pattern name their traces in order, each once, and refuse in one line."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from mlpfusion.errors import UsageError
from mlpfusion.trace.job.sources import Sources, is_group, sources

if TYPE_CHECKING:
    from pathlib import Path


def folder(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"{}")
    return root


def named(found: Sources, root: Path) -> list[str]:
    return [os.path.relpath(name, root) for name in found.names]


def test_a_directory_stands_for_its_traces_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder(tmp_path, *(f"rank{rank}.json" for rank in (0, 1, 2, 10, 11, 100)), "notes.txt", ".hidden.json", "b.json.gz")
    found = sources([str(tmp_path)])
    assert found.one_job
    assert named(found, tmp_path) == ["b.json.gz", *(f"rank{rank}.json" for rank in (0, 1, 2, 10, 11, 100))]


def test_a_directory_of_directories(tmp_path: Path) -> None:
    folder(tmp_path, "rank_1/trace.json", "rank_0/trace.json", "rank_10/trace.json.gz", "rank_10/deep/t.json")
    assert named(sources([str(tmp_path)]), tmp_path) == [
        "rank_0/trace.json",
        "rank_1/trace.json",
        "rank_10/trace.json.gz",
    ]


def test_a_pattern(tmp_path: Path) -> None:
    folder(tmp_path, "rank_1/a.json", "rank_0/a.json", "rank_0/b.txt", "t[0].json")
    assert named(sources([f"{tmp_path}/rank_*/a.json"]), tmp_path) == ["rank_0/a.json", "rank_1/a.json"]
    assert named(sources([f"{tmp_path}/**/*.json"]), tmp_path) == ["rank_0/a.json", "rank_1/a.json", "t[0].json"]
    assert named(sources([f"{tmp_path}/rank_*"]), tmp_path) == ["rank_0/a.json", "rank_1/a.json"]
    assert named(sources([f"{tmp_path}/*/b.*"]), tmp_path) == ["rank_0/b.txt"]
    one = sources([f"{tmp_path}/t[0].json"])  # a file's own name
    assert (named(one, tmp_path), one.one_job) == (["t[0].json"], False)


def test_single_files_stay_as_they_are(tmp_path: Path) -> None:
    folder(tmp_path, "a.json", "all.zip")
    given = [f"{tmp_path}/a.json", f"{tmp_path}/all.zip:x/[1].json", "-", "nowhere.json"]
    assert sources(given) == Sources(tuple(given))


@pytest.mark.parametrize(
    ("made", "asked", "refusal"),
    [
        ([], "", "has no trace: it is empty"),
        (["notes.txt"], "", "has no trace: no file in it, or in a directory in it, ends in .json, .json.gz, .trace or"),
        (["a/notes.txt"], "", "has no trace: no file in it"),
        (["a.json"], "*.gz", r"no file matches"),
        (["a/x.txt"], "[a]", r"no trace is in what"),
    ],
)
def test_what_holds_no_trace_is_refused_in_one_line(tmp_path: Path, made: list[str], asked: str, refusal: str) -> None:
    folder(tmp_path, *made)
    name = os.path.join(tmp_path, asked) if asked else str(tmp_path)
    with pytest.raises(UsageError, match=re.escape(refusal)) as caught:
        sources([name])
    assert "\n" not in str(caught.value)
    assert repr(name) in str(caught.value)


def test_a_file_given_twice(tmp_path: Path) -> None:
    folder(tmp_path, "a.json", "b.json", "all.zip")
    (tmp_path / "link.json").symlink_to("a.json")
    for given in (
        ["a.json", "a.json"],
        ["a.json", "b.json", "./a.json"],
        ["a.json", "link.json"],
        ["a.json", "."],
        ["*.json", "b.json"],
        ["all.zip:m.json", "./all.zip:m.json"],
    ):
        with pytest.raises(UsageError, match="is given twice"):
            sources([os.path.join(tmp_path, name) for name in given])
    assert named(sources([str(tmp_path)]), tmp_path) == ["a.json", "b.json"]  # a link in one directory is no other file
    assert len(sources([f"{tmp_path}/all.zip:m.json", f"{tmp_path}/all.zip:n.json"]).names) == 2
    with pytest.raises(UsageError, match="stdin can be read only once"):
        sources(["-", "-"])


def test_what_cannot_be_read_is_left_to_who_opens_it(tmp_path: Path) -> None:
    folder(tmp_path, "rank0.json")
    (tmp_path / "rank1.json").symlink_to("gone")
    os.mkfifo(tmp_path / "rank2.json")  # would block whoever opens it
    assert named(sources([str(tmp_path)]), tmp_path) == ["rank0.json", "rank1.json"]


@pytest.mark.parametrize(
    ("name", "group"), [("", False), ("-", False), ("a\0*", False), (".", True), ("no*where", True)]
)
def test_what_is_a_group(name: str, group: bool) -> None:
    assert is_group(name) is group
