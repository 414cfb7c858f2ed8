"""What no command overwrites: its own sources, and files that are none of ours."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.paths import DATA

from mlpfusion.cli import main
from mlpfusion.errors import UsageError
from mlpfusion.stages.trace import run
from mlpfusion.storage import results

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = "def step():\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with traces, one of them behind a link, an archive and a script, which is where commands run."""
    monkeypatch.chdir(tmp_path)
    for name, source in (("a.json", "h200_eager"), ("b.json", "h200_compile")):
        Path(name).write_bytes(gzip.decompress((DATA / f"{source}.json.gz").read_bytes()))
    shutil.make_archive("traces", "zip", tmp_path, "a.json")
    Path("link.json").symlink_to("a.json")
    Path("mine.py").write_text(SCRIPT)
    Path("notes.txt").write_text("mine")
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], folder: Path, args: Sequence[str]) -> str:
    """The one line with which a command refuses and leaves every file as it was."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code = main.main(args)
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    return err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["read", "a.json", "--json", "a.json"], "--json 'a.json' would overwrite 'a.json', which is to be read"),
        (["read", "b.json", "a.json", "--json", "./a.json"], "--json './a.json' would overwrite 'a.json'"),
        (["read", "a.json", "--json", "link.json"], "--json 'link.json' would overwrite 'a.json'"),
        (["read", "link.json", "--json", "a.json"], "would overwrite 'link.json'"),
        (["read", "traces.zip:a.json", "--json", "traces.zip"], "would overwrite 'traces.zip:a.json'"),
        (["read", "--json", "a.json", "b.json"], "'a.json' exists and holds no 'readings' of mlpfusion"),
        (["read", "a.json", "--json", "notes.txt"], "'notes.txt' exists and holds no 'readings' of mlpfusion"),
        (["diff", "a.json", "b.json", "--json", "b.json"], "--json 'b.json' would overwrite 'b.json'"),
        (["diff", "a.json", "a.json", "--json", "b.json"], "'b.json' exists and holds no 'difference' of mlpfusion"),
        (["trace", "mine.py:step", "--out", "mine.py"], "would overwrite the script itself"),
        (["trace", "mine.py:step", "--out", "notes.txt"], "trace file 'notes.txt' exists and is no trace"),
        (["profile", "--json", "a.json"], "result file 'a.json' exists and holds no 'profile' of mlpfusion"),
        (["profile", "--json", "notes.txt"], "result file 'notes.txt' exists and holds no 'profile' of mlpfusion"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], folder: Path, args: list[str], message: str) -> None:
    assert message in refused(capsys, folder, args)


def test_a_row_of_a_result_file_is_a_source(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    Path("r.json").write_text('{"schema": 1, "kind": "profile"}')
    assert "would overwrite 'r.json:eager'" in refused(
        capsys, folder, ["diff", "r.json:eager", "a.json", "--json", "r.json"]
    )
    assert "holds no 'readings'" in refused(capsys, folder, ["read", "a.json", "--json", "r.json"])


def test_what_we_wrote_and_what_is_empty_may_be_written_again(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    Path("r.json").touch()
    for source in ("a.json", "b.json"):
        assert main.main(["read", source, "--json", "r.json"]) == 0
        assert json.loads(Path("r.json").read_text())["traces"][0]["source"] == source
    for _ in range(2):
        assert main.main(["diff", "a.json", "b.json", "--json", "d.json"]) == 0
    assert capsys.readouterr().err == ""


def test_a_trace_may_only_take_the_place_of_a_trace(folder: Path) -> None:
    Path("t.json.gz").write_bytes(gzip.compress(b'{\n  "schemaVersion": 1, "traceEvents": []}'))
    Path("empty.json.gz").touch()
    for name in ("t.json.gz", "empty.json.gz"):
        assert run.record(len, (), calls=1, out=name) == Path(name)
    for content in (gzip.compress(b"a,b\n"), b"\x1f\x8b broken", b'{"schema": 1, "kind": "profile"}', b"\0" * 9):
        Path("other.gz").write_bytes(content)
        with pytest.raises(UsageError, match="exists and is no trace"):
            run.record(len, (), calls=1, out="other.gz")
        assert Path("other.gz").read_bytes() == content


def test_an_output_folder_keeps_a_result_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / results.RESULT_NAME).write_text("{}")
    with pytest.raises(UsageError, match="holds no 'profile'"):
        results.check_directory(tmp_path, overwrite=True)
    assert os.listdir(tmp_path) == [results.RESULT_NAME]
