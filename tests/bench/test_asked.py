"""bench/asked.py: a file that cannot be written is refused before anything is measured."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bench import bench
from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_can_be_written_is_taken(tmp_path: Path) -> None:
    assert bench("asked").result_file(str(tmp_path / "found.json")) == tmp_path / "found.json"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["none/found.json", "."])
def test_one_that_cannot_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=name.split("/", maxsplit=1)[0]):
        bench("asked").result_file(str(tmp_path / name))


def test_every_script_that_writes_one_file_looks_first() -> None:
    """Those that name a default look at it themselves."""
    for path in sorted((ROOT / "bench").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert '"--json", type=Path' not in text, path.name
        if '"--out", type=Path, help="' in text:
            assert "check_file" in text, path.name


@given(st.integers(0, 40), st.integers(1, 9))
def test_the_parts_of_a_list_are_the_list(length: int, parts: int) -> None:
    every = [*range(length)]
    own = [every[bench("asked").share(f"{part}/{parts}")] for part in range(1, parts + 1)]
    assert sorted(itertools.chain.from_iterable(own)) == every
    assert max(map(len, own)) - min(map(len, own)) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2", ""])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as 1/2"):
        bench("asked").share(text)
