"""bench/asked.py: a file that cannot be written is refused before anything is measured."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest
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
