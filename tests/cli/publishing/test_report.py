"""The verb `report`, from the command line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.paths import RESULTS

from mlpfusion.cli.main import main
from mlpfusion.report.page.page import MARK

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = RESULTS / "h200-profile.json"


def test_a_page_is_written_and_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    for _ in range(2):
        assert main(["report", str(PROFILE), "-o", str(page), "--title", "A <b>"]) == 0
    assert re.fullmatch(rf"({page}: \d\.\d\d MB of 1 file\n){{2}}", capsys.readouterr().out)
    text = page.read_text("utf-8")
    assert text.startswith(MARK)
    assert "<h1>A &lt;b&gt;</h1>" in text
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "report needs -o FILE.html"),
        (("-o", "-"), "'-' is none"),
        (("-o", "in.json"), "exists and is no report of mlpfusion"),
        (("-o", "other.txt"), "'other.txt' exists and is no report of mlpfusion"),
        (("-o", "."), "is a directory"),
        (("-o", "/dev/null"), "not a regular file"),
        (("-o", "none/page.html"), "does not exist"),
        (("in.json", "-o", "page.html"), "'in.json' is given twice"),
        (("none.json", "-o", "page.html"), "'none.json' does not exist"),
    ],
)
def test_what_cannot_be_is_one_line_and_writes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROFILE, "in.json")
    (tmp_path / "other.txt").write_text("mine", "utf-8")
    assert main(["report", "in.json", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert sorted(os.listdir(tmp_path)) == ["in.json", "other.txt"]
    assert (tmp_path / "in.json").read_bytes() == PROFILE.read_bytes()


def test_a_full_disk_leaves_the_old_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"{MARK}old", "utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["report", str(PROFILE), "-o", str(page)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert page.read_text("utf-8") == f"{MARK}old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_it_imports_neither_torch_nor_numpy(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = sys.modules['numpy'] = None;"
        "from mlpfusion.__main__ import main; sys.exit(main())"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "report",
        str(RESULTS / "h200-choose-article"),
        "-o",
        str(tmp_path / "a.html"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a.html").stat().st_size < 2_500_000
