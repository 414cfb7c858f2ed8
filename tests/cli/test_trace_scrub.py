"""The verb scrub: writes what can be shared, never over its input or what is no trace; what is wrong is one line."""

from __future__ import annotations

import gzip
import io
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from support.timeline import Timeline

from mlpfusion.cli import main
from mlpfusion.trace.analysis.summary import read

if TYPE_CHECKING:
    from pathlib import Path


def run(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = main.main([str(arg) for arg in args])
    return code, *capsys.readouterr()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Timeline().mlp(1000, name="secret").mlp(1200, name="secret").write(tmp_path, "in.json.gz")


@pytest.mark.parametrize("option", ["-o", "--out"])
def test_scrubs(option: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json.gz"
    assert run(capsys, "scrub", trace, option, out) == (0, f"{out}\n", "")
    assert b"secret" not in gzip.decompress(out.read_bytes())
    assert read(out).call.count == 2
    assert run(capsys, "scrub", trace, option, out)[0] == 0  # a trace may be replaced


def test_scrubs_stdin(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(trace.read_bytes())))
    assert run(capsys, "scrub", "-", "-o", tmp_path / "out.json")[0] == 0
    assert read(tmp_path / "out.json").call.count == 2


def test_refuses_its_own_input(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = trace.read_bytes()
    link = tmp_path / "link.json.gz"
    link.symlink_to(trace)
    for out in (trace, link):
        code, printed, error = run(capsys, "scrub", trace, "-o", out)
        assert (code, printed) == (2, "")
        assert "would overwrite" in error
    assert trace.read_bytes() == before


@pytest.mark.parametrize("text", ["notes", '{"kind": "profile"}'])
def test_replaces_nothing_but_a_trace(
    text: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "notes.txt"
    out.write_text(text)
    code, _, error = run(capsys, "scrub", trace, "-o", out)
    assert code == 2
    assert "is no trace" in error
    assert out.read_text() == text


@pytest.mark.parametrize(
    "args",
    [
        ["nothing.json", "-o", "out.json"],
        ["in.json.gz"],
        ["in.json.gz", "-o", "no/out.json"],
        ["in.json.gz", "-o", "."],
        ["in.json.gz:x", "-o", "out.json"],
    ],
)
def test_what_is_wrong_is_one_line(
    args: list[str], trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, printed, error = run(capsys, "scrub", *args)
    assert (code, printed, error.count("\n")) == (2, "", 1)
    assert not (tmp_path / "out.json").exists()
