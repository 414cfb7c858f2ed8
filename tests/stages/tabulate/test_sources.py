"""The files of a table: each once, known by the end of its path and by its digest."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from support.paths import RESULTS
from support.races_made import profile
from support.studies_made import recorded

from mlpfusion.errors import UsageError
from mlpfusion.stages.tabulate.sources import read
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

CHOSEN = RESULTS / "h200-choose-article"


def test_the_digest_is_of_the_bytes_on_disk(tmp_path: Path) -> None:
    plain, packed = tmp_path / "r.json", tmp_path / "r.json.gz"
    results.save(profile({"triton": 0.9}), plain)
    packed.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    found = read([str(plain), str(packed)])
    assert [each.digest for each in found] == [hashlib.sha256(p.read_bytes()).hexdigest() for p in (plain, packed)]
    assert found[0].result == found[1].result


def test_a_folder_gives_its_files_the_choice_first() -> None:
    found = read([str(CHOSEN)])
    assert next(each.name for each in found) == "choice.json"
    assert len(found) == 7


def test_the_file_of_a_study_is_its_folder_where_rows_are_wanted(tmp_path: Path) -> None:
    made = recorded(tmp_path / "study")
    own = str(tmp_path / "study" / "study.json")
    assert [each.result.kind for each in read([own])] == ["study"]
    assert {each.path for each in read([own], cells=True)} == {each.path for each in read([str(tmp_path / "study")])}
    assert len(read([own], cells=True)) == 1 + len(made.cells)
    with pytest.raises(UsageError, match="given twice"):
        read([own, str(tmp_path / "study" / "cells")], cells=True)


def test_files_are_known_by_as_much_of_their_paths_as_tells_them_apart() -> None:
    found = read([str(CHOSEN / "choice.json"), str(RESULTS / "h200-choose-gemma-2b" / "choice.json")])
    assert [each.name for each in found] == ["h200-choose-article/choice.json", "h200-choose-gemma-2b/choice.json"]


@pytest.mark.parametrize("how", ["typed twice", "copy", "in a folder", "link"])
def test_a_file_that_is_there_twice_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "r.json"
    results.save(profile({"triton": 0.9}), path)
    other = tmp_path / "other.json"
    if how == "copy":
        shutil.copy(path, other)
    elif how == "link":
        other.symlink_to(path)
    names = {"typed twice": [path, path], "in a folder": [tmp_path, path]}.get(how, [path, other])
    with pytest.raises(UsageError, match="given twice; name it once") as error:
        read([str(name) for name in names])
    assert "r.json" in str(error.value)


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="RESULT needs a path"):
        read([name])


def test_stdin_has_a_digest_too(monkeypatch: pytest.MonkeyPatch) -> None:
    data = results.encode(profile({"triton": 0.9})).encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    (found,) = read(["-"])
    assert (found.name, found.digest) == ("stdin", hashlib.sha256(data).hexdigest())
