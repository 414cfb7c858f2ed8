"""Files are written whole or not at all, and a path that takes none is one line before any work."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.storage import files


def left(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@given(st.binary(max_size=300))
def test_what_is_written_is_what_is_there_and_nothing_else(tmp_path: Path, data: bytes) -> None:
    files.write_whole("file", tmp_path / "a", data)
    assert left(tmp_path) == {"a": data}
    assert files.read_whole("file", tmp_path / "a", len(data)) == data


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_disk_that_refuses_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    files.write_whole("file", tmp_path / "a", b"old")
    if fails == "fsync":
        monkeypatch.setattr(os, "fsync", refuse)
    else:
        monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(MlpfusionError) as caught:
        files.write_whole("file", tmp_path / "a", b"new")
    assert str(caught.value) == f"cannot write file {str(tmp_path / 'a')!r}: No space left on device"
    assert left(tmp_path) == {"a": b"old"}


def test_a_link_is_followed_and_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    files.write_whole("file", tmp_path / "link", b"1")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"1"


def test_the_longest_name_is_written(tmp_path: Path) -> None:
    files.write_whole("file", tmp_path / ("a" * 255), b"1")
    with pytest.raises(UsageError, match=r"File name too long$"):
        files.write_whole("file", tmp_path / ("a" * 256), b"1")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (".", "is a directory; give the name of a file"),
        ("no/such/file", "does not exist"),
        ("a\0b", "cannot be written: embedded null byte"),
        ("loop", "loop|Too many levels|not a regular file"),
        ("pipe", "is not a regular file"),
        ("file/in", "does not exist|Not a directory"),
    ],
)
def test_where_no_file_can_be(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError, match=said) as caught:
        files.check_file("result file", tmp_path / name)
    assert str(caught.value).startswith("result file '")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux's")
def test_a_pipe_known_by_its_number_is_no_regular_file() -> None:
    ends = os.pipe()
    try:
        with pytest.raises(UsageError, match=r"^result file '/proc/self/fd/[0-9]+' is not a regular file"):
            files.check_file("result file", Path(f"/proc/self/fd/{ends[1]}"))
    finally:
        for end in ends:
            os.close(end)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "^file '.*nowhere' does not exist$"),
        (".", "is a directory; give the name of a file$"),
        ("a\0b", "cannot be read: embedded null byte$"),
        ("big", r"is larger than 1 MiB; that is none of ours$"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "big").write_bytes(bytes(2**20 + 1))
    with pytest.raises(UsageError, match=said):
        files.read_whole("file", tmp_path / name, 2**20)
    (tmp_path / "big").write_bytes(bytes(2**20))
    assert len(files.read_whole("file", tmp_path / "big", 2**20)) == 2**20


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="Linux's")
def test_a_file_without_an_end_is_not_read_for_ever() -> None:
    with pytest.raises(UsageError, match="is larger than"):
        files.read_whole("file", Path("/dev/zero"), 2**20)


@pytest.mark.parametrize("name", ["there", "new", "new/and/deep"])
def test_a_directory_that_can_be_made_is_not_made(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    assert files.check_directory("output directory", tmp_path / name) == tmp_path / name
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("file", "is a file, not a directory$"),
        ("file/below", "'.*file' is a file, not a directory$"),
        ("link", "is a link to '.*gone', which does not exist$"),
        ("a" * 300, "File name too long$"),
    ],
)
def test_where_no_directory_can_be(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match=said):
        files.check_directory("output directory", tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


def test_a_folder_that_takes_a_file_is_not_refused_and_stays_empty(tmp_path: Path) -> None:
    assert files.refusal(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert files.refusal(tmp_path / "nowhere") == "No such file or directory"


def test_a_scratch_folder_goes_and_an_error_in_it_shows_no_path() -> None:
    with files.scratch() as folder:
        (folder / "a").write_bytes(b"1")
    assert not folder.exists()
    with (
        pytest.raises(MlpfusionError, match=r"^a temporary file cannot be written: No such file or directory$"),
        files.scratch() as made,
    ):
        (made / "no" / "such").write_bytes(b"1")
    with pytest.raises(FileNotFoundError), files.scratch():  # another file's error is another's
        Path("nowhere/at/all").write_bytes(b"1")


def test_what_is_written_while_a_scratch_folder_goes_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that nothing ends may do."""

    def refuse(path: Any, **_: Any) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))

    with files.scratch() as folder:
        monkeypatch.setattr(os, "rmdir", refuse)
    monkeypatch.undo()
    shutil.rmtree(folder)


def test_no_scratch_folder_names_what_may_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(files.tempfile, "TemporaryDirectory", refuse)
    monkeypatch.setenv("TMPDIR", "/no/such/folder")
    with pytest.raises(MlpfusionError, match=r"^no temporary file can be written: .*; TMPDIR may name another folder$"):
        files.scratch().__enter__()


def test_two_paths_to_one_file_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "link").symlink_to("a")
    os.link(tmp_path / "a", tmp_path / "hard")
    for other in ("a", "link", "hard"):
        assert files.is_same(tmp_path / "a", tmp_path / other)
    (tmp_path / "b").write_bytes(b"")
    for other in ("b", "nowhere", "x\0y"):
        assert not files.is_same(tmp_path / "a", tmp_path / other)


HOLDS = """
import sys
from pathlib import Path
from typing import Any
from mlpfusion.storage import files
with files.alone(Path(sys.argv[1])):
    print(flush=True)
    sys.stdin.readline()
"""


def test_one_run_at_a_time_holds_a_folder_and_its_end_frees_it(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="POSIX locks")
    folder = tmp_path / "out"
    command = [sys.executable, "-c", HOLDS, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(UsageError, match=r"another run is writing there; name another folder or wait for it$"):
            files.alone(folder).__enter__()
        process.kill()
    with files.alone(folder):
        (folder / "kept").write_bytes(b"")
    assert left(folder) == {"kept": b""}


def test_a_folder_that_was_made_and_stayed_empty_goes_again(tmp_path: Path) -> None:
    with files.alone(tmp_path / "a" / "b"):
        assert stat.S_ISDIR((tmp_path / "a" / "b").stat().st_mode)
    assert list(tmp_path.iterdir()) == []
    with files.alone(None):  # nothing to hold
        pass
