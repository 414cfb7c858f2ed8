"""What a command names: files and folders, each file once."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.paths import RESULTS
from support.profiles_made import profile
from support.studies_made import recorded

from mlpfusion.errors import UsageError
from mlpfusion.storage import results
from mlpfusion.storage.gathered import gather

FILE = str(RESULTS / "h200-article.json")


def test_files_and_folders_come_in_their_order() -> None:
    found = gather([FILE, str(RESULTS / "h200-choose-article")])
    assert [Path(each.path).name for each in found[:3]] == ["h200-article.json", "choice.json", "inference-1.json"]
    assert all(Path(each.path).is_file() for each in found)
    assert found[1].record.kind == "choice"


def test_stdin_is_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    text = results.encode(profile()).encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    assert [each.path for each in gather(["-", FILE])] == ["-", FILE]


@pytest.mark.parametrize(
    "again", [FILE, f"{RESULTS}/./h200-article.json", str(RESULTS)], ids=["same", "other", "folder"]
)
def test_a_file_is_named_once(again: str) -> None:
    with pytest.raises(UsageError, match="is given twice"):
        gather([FILE, again])


def test_a_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(FILE)
    with pytest.raises(UsageError, match=r"link.json' is given twice, also as '.*h200-article.json'"):
        gather([FILE, str(link)])


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no file of mlpfusion"):
        gather([str(tmp_path)])


# ---- the folder of a study -------------------------------------------------------------------------------------------


def test_of_a_study_come_its_file_and_the_cells_that_it_lists(tmp_path: Path) -> None:
    study, beside = tmp_path / "study", tmp_path / "beside.json"
    made = recorded(study)
    cells = [study / "cells" / f"{each.file}" for each in made.cells]
    shutil.copytree(study, study / "shard-1-of-1")
    shutil.copy(cells[0], study / "cells" / "of-before.json")
    shutil.copy(cells[0], beside)
    wanted = {study / "study.json", *cells}
    assert {Path(each.path) for each in gather([str(study)])} == wanted
    of_file = gather([str(study / "study.json")])  # by the name of its own file
    assert {Path(each.path) for each in of_file} == wanted
    assert {each.given for each in of_file} == {str(study)}
    assert {Path(each.path) for each in gather([str(tmp_path)])} == {*wanted, beside}


def test_a_damaged_study_is_named(tmp_path: Path) -> None:
    recorded(tmp_path)
    text = (tmp_path / "study.json").read_text(encoding="utf-8")
    (tmp_path / "study.json").write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(UsageError, match=r"study.json' is not JSON, or cut short"):
        gather([str(tmp_path)])
