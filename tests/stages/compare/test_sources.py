"""Reading one side: files, rows, folders, and what is none of these."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from support.comparisons_made import raced, saved, with_spec
from support.paths import RESULTS
from support.studies_made import recorded

from mlpfusion.errors import UsageError
from mlpfusion.stages.compare import sources

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_and_a_row_of_it(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.json", raced({"triton": 0.9}))
    assert sources.read(path).row is None
    assert sources.read(f"{path}:triton").row == "triton"
    assert list(sources.read(path).groups[0].rows) == ["eager", "triton"]


@pytest.mark.parametrize("name", ["a:b.json", "a b.json", "ü.json", "a.json:triton"])
def test_a_file_with_any_name(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, name, raced({"triton": 0.9}))
    assert sources.read(path).row is None
    assert sources.read(f"{path}:triton").row == "triton"


def test_the_row_of_a_loose_file(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.json", raced({"./mine.py:Mine": 0.9}))
    assert sources.read(f"{path}:./mine.py:Mine").row == "./mine.py:Mine"
    with pytest.raises(UsageError, match=r"has no row './mine.py:Yours'; valid: eager, ./mine.py:Mine"):
        sources.read(f"{path}:./mine.py:Yours")


def test_a_folder_with_one_below_it_and_other_files(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    saved(tmp_path, "a.json", raced({"triton": 0.9}))
    saved(tmp_path / "below", "b.json", with_spec(raced({"triton": 0.9}), activation="silu"))
    (tmp_path / "other.json").write_text('{"traceEvents": []}')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "note.txt").write_text("hello")
    found = sources.read(str(tmp_path))
    assert [group.spec.activation for group in found.groups] == ["gelu_tanh", "silu"]
    assert sources.read(f"{tmp_path}:triton").row == "triton"


def test_the_folder_of_a_choice() -> None:
    assert len(sources.read(str(RESULTS / "h200-choose-article")).groups) == 5


def test_a_workload_on_several_devices_is_told_apart(tmp_path: Path) -> None:
    found = raced({"triton": 0.9})
    saved(tmp_path, "a.json", found)
    assert found.device.name not in sources.read(str(tmp_path)).groups[0].title
    saved(tmp_path, "b.json", replace(found, device=replace(found.device, name="other card")))
    titles = [group.title for group in sources.read(str(tmp_path)).groups]
    assert [title.rpartition(", ")[2] for title in titles] == [found.device.name, "other card"]


def test_the_folder_of_a_study(tmp_path: Path) -> None:
    made = recorded(tmp_path)
    saved(tmp_path / "cells", "of-before.json", raced({"triton": 0.9}))
    shutil.copytree(tmp_path, tmp_path / "shard-1-of-1")
    files = {group.file for group in sources.read(str(tmp_path)).groups}
    assert files == {str(tmp_path / "cells" / f"{each.file}") for each in made.cells}


def test_two_files_of_one_row_in_a_folder_are_refused(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        saved(tmp_path, name, raced({"triton": 0.9}))
    with pytest.raises(UsageError, match=r"a.json' and '.*b.json' both have a row 'eager' of 8192 tokens"):
        sources.read(str(tmp_path))


def test_a_damaged_profile_in_a_folder_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.json", raced({"triton": 0.9}))
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    (tmp_path / "a.json").write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(UsageError, match=r"a.json' is not JSON, or cut short"):
        sources.read(str(tmp_path))
    with pytest.raises(UsageError, match=r"a.json' is not JSON, or cut short"):
        sources.read(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "needs a name"),
        ("a\0b", "needs a name"),
        ("nowhere.json", "'nowhere.json' does not exist"),
        ("nowhere.json:triton", "'nowhere.json:triton' does not exist"),
        ("empty", "holds no profile"),
        ("a.json:nothing", "'a.json' has no row 'nothing'; valid: eager, triton"),
        ("a.json:", "'a.json:' does not exist"),
        ("text.json", "is not JSON"),
        ("nothing.json", "'nothing.json' is not JSON"),
        ("grid.json", "holds a 'grid'; can be compared: 'profile', 'choice'"),
        ("future.json", "schema 99"),
        ("list.json", "no schema number and kind"),
    ],
)
def test_what_cannot_be_a_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    saved(tmp_path, "a.json", raced({"triton": 0.9}))
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "nothing.json").write_text("")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "grid.json").write_text('{"schema": 1, "kind": "grid"}')
    (tmp_path / "future.json").write_text('{"schema": 99, "kind": "profile"}')
    with pytest.raises(UsageError) as refused:
        sources.read(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
