"""A result file has no folder of its maker's in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from support.comparisons_made import raced
from support.profiles_made import profile, timed

from mlpfusion.records.environment import Process
from mlpfusion.stages.compare import self_test
from mlpfusion.stages.profile.published import file_name, published
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("eager", "eager"),
        ("./mine.py:Mine", "./mine.py:Mine"),
        ("kernels/mine.py:Mine", "kernels/mine.py:Mine"),
        ("/home/planted/mine.py:Mine", "mine.py:Mine"),
        ("~/deep/mine.py:Mine", "mine.py:Mine"),
        ("../planted/mine.py:Mine", "mine.py:Mine"),
        ("./../../planted/mine.py:Mine", "mine.py:Mine"),
    ],
)
def test_a_loose_file_keeps_its_name(typed: str, shown: str) -> None:
    row = replace(timed(typed, 100), distributions={typed: "0123", "torch": "2"})
    made = profile(row, processes=(Process(started="now", kernels={typed: ("a",)}),))
    behind = replace(made.environment, distributions={typed: "0123"})
    found = published(replace(made, environment=behind))
    assert found.rows[0].backend == shown
    assert found.rows[0].distributions == {shown: "0123", "torch": "2"}
    assert found.environment.distributions == {shown: "0123"}
    assert found.processes[0].kernels == {shown: ("a",)}
    assert "planted" not in results.encode(found)


def test_what_compares_the_file_with_itself_names_its_rows() -> None:
    made = raced({"/home/planted/mine.py:Mine": 0.9})
    found = published(replace(made, itself=self_test.of_profile(made)))
    assert {row.backend for row in found.itself} == {"mine.py:Mine"}
    assert "planted" not in results.encode(found)


def test_below_the_working_folder_it_is_a_relative_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = published(profile(timed(f"{tmp_path}/kernels/mine.py:Mine", 100)))
    assert found.rows[0].backend == "kernels/mine.py:Mine"


def test_two_files_of_one_name_stay_two_rows() -> None:
    names = [f"/home/planted/{folder}/mine.py:Mine" for folder in ("a", "b", "c")]
    found = published(profile(*[timed(name, 100) for name in names]))
    assert [row.backend for row in found.rows] == ["mine.py:Mine", "mine.py:Mine (2)", "mine.py:Mine (3)"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("eager,triton", "eager,triton"),
        ("/home/planted/out.json", "out.json"),
        ("eager,/home/planted/mine.py:Mine,../x.py:A", "eager,mine.py:Mine,x.py:A"),
        ("out/", "out"),
        ("/", "/"),
        ("NVIDIA H200", "NVIDIA H200"),
    ],
)
def test_a_path_on_the_command_line_is_its_last_part(value: str, shown: str) -> None:
    assert file_name(value) == shown
