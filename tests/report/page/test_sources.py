"""The files that a page is made of."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from typing import TYPE_CHECKING

import pytest
from support.paths import RESULTS

from mlpfusion.errors import UsageError
from mlpfusion.report.page import sources

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = RESULTS / "h200-profile.json"
CHOICE = RESULTS / "h200-choose-article"


def test_a_file_is_carried_as_it_is_on_disk() -> None:
    (found,) = sources.gather([str(PROFILE)])
    assert (found.name, found.data) == ("h200-profile.json", PROFILE.read_bytes())
    assert found.digest == hashlib.sha256(found.data).hexdigest()


def test_a_packed_file_is_read_and_stays_packed(tmp_path: Path) -> None:
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(PROFILE.read_bytes()))
    (found,) = sources.gather([str(packed)])
    assert found.data == packed.read_bytes()
    assert found.schema == sources.gather([str(PROFILE)])[0].schema


def test_a_folder_is_all_its_files_the_choice_first() -> None:
    found = sources.gather([str(CHOICE)])
    assert found[0].name == "choice.json"
    assert {each.name for each in found} == {path.name for path in CHOICE.glob("*.json")}


def test_the_schema_is_that_of_the_file_on_disk() -> None:
    old = next(each for each in sources.gather([str(CHOICE)]) if each.name == "inference-1.json")
    assert (old.schema, old.result.schema) == (1, 2)


def test_equal_names_of_two_folders_are_told_apart(tmp_path: Path) -> None:
    for number, name in enumerate(("h200-article.json", "h200-profile.json")):
        (tmp_path / str(number)).mkdir()
        shutil.copy(RESULTS / name, tmp_path / str(number) / "result.json")
    found = sources.gather([str(tmp_path / "0" / "result.json"), str(tmp_path / "1" / "result.json")])
    assert [each.name for each in found] == ["result.json", "result.json (2)"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a.json", "a.json"], "'a.json' is given twice"),
        (["a.json", "./folder/../a.json"], "is given twice"),
        (["a.json", "folder"], "holds the same bytes as 'a.json'"),
        (["-"], "stdin has no file"),
        (["empty"], "holds no file of mlpfusion"),
        (["none.json"], "'none.json' does not exist"),
        (["text.json"], "not JSON"),
        (["zero.json"], "not JSON"),
        ([""], "a result needs a path, got ''"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder").mkdir()
    for name in ("a.json", "folder/b.json"):
        shutil.copy(PROFILE, tmp_path / name)
    (tmp_path / "text.json").write_text("nothing of ours", "utf-8")
    (tmp_path / "zero.json").write_bytes(b"")
    with pytest.raises(UsageError) as caught:
        sources.gather(given)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
