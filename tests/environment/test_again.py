"""The file of a loose backend is found again by the name that a result has of it, and never taken for another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlpfusion.environment import again, provenance
from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path, place: str, text: str = "class Mine: pass\n") -> str:
    """Write a file, and return its digest."""
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return provenance.digest([path])


@pytest.mark.parametrize(
    "name", ["eager", "compile-max-autotune", "auto:choice.json", "a/mine.py:Mine", "/a/mine.py:Mine"]
)
def test_what_is_no_name_of_a_file_alone_stays(name: str, folder: Path) -> None:
    assert again.found(name, None, [folder]) == name


@pytest.mark.parametrize("name", ["mine.py:Mine", "./mine.py:Mine"])
@pytest.mark.parametrize("recorded", [True, False])
def test_in_the_working_folder_it_keeps_its_name(name: str, recorded: bool, folder: Path) -> None:
    digest = written(folder, "mine.py")
    assert again.found(name, digest if recorded else "of other contents", [folder]) == name


@pytest.mark.parametrize("digest", [None, "of other contents"])
def test_the_only_one_below_is_it_though_it_was_edited(digest: str | None, folder: Path) -> None:
    written(folder, "deep/er/mine.py")
    assert again.found("mine.py:Mine", digest, [folder]) == "deep/er/mine.py:Mine"


def test_of_several_it_is_the_one_that_was_measured(folder: Path) -> None:
    written(folder, "mine.py", "1")
    written(folder, "a/mine.py", "2")
    digest = written(folder, "b/mine.py", "3")
    assert again.found("mine.py:Mine", digest, [folder]) == "b/mine.py:Mine"
    assert again.found("mine.py:Mine (2)", digest, [folder]) == "b/mine.py:Mine"


def test_several_that_may_be_it_are_named(folder: Path) -> None:
    written(folder, "a/mine.py", "1")
    written(folder, "b/mine.py", "2")
    with pytest.raises(UsageError, match=r"'mine.py:Mine' may be any of a/mine.py, b/mine.py; none has the contents"):
        again.found("mine.py:Mine", "of other contents", [folder])


def test_a_numbered_one_is_known_by_its_contents_alone(folder: Path) -> None:
    written(folder, "mine.py")
    with pytest.raises(UsageError, match=r"'mine.py:Mine \(2\)': no file 'mine.py' of it is in this folder or below"):
        again.found("mine.py:Mine (2)", "of other contents", [folder])


def test_hidden_folders_are_left_alone_and_nothing_is_made_up(folder: Path) -> None:
    written(folder, ".hidden/mine.py")
    with pytest.raises(UsageError, match=r"no file 'mine\.py'"):
        again.found("mine.py:Mine", None, [folder])


def test_a_folder_elsewhere_gives_a_whole_path(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    digest = written(other, "mine.py")
    assert again.found("mine.py:Mine", digest, [folder, other]) == f"{other / 'mine.py'}:Mine"


def test_no_more_folders_are_looked_into_than_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "_MOST", 2)
    for number in range(5):
        (folder / f"a{number}").mkdir()
    written(folder, "z/mine.py")
    with pytest.raises(UsageError, match=r"no file 'mine\.py'"):
        again.found("mine.py:Mine", None, [folder])
