"""inputs: `-` is stdin for every verb that reads a file, plain or gzip."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support import rings
from support.paths import DATA, RESULTS

from mlpfusion.cli import main
from mlpfusion.errors import UsageError
from mlpfusion.models import known
from mlpfusion.storage import inputs
from mlpfusion.trace import perfetto

RESULT = RESULTS / "h200-traffic.json"
PROFILE = json.dumps(next(iter(json.loads(RESULT.read_text(encoding="utf-8"))["profiles"].values()))).encode()
TRACE = gzip.decompress((DATA / "h200_compile.json.gz").read_bytes())


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: bytes, *args: str
) -> tuple[int, str, str]:
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", stream)
    code = main.main(args)
    return code, *capsys.readouterr()


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    result, trace = tmp_path / "r.json", tmp_path / "t.json"
    result.write_bytes(PROFILE)
    trace.write_bytes(TRACE)
    return str(result), str(trace)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])])
@pytest.mark.parametrize("verb", ["table", "predict", "read", "diff of rows", "diff of traces"])
def test_stdin_gives_what_the_file_gives(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, files: tuple[str, str], verb: str, pack
) -> None:
    result, trace = files
    another = f"{trace}-2.json"  # a trace diffed with itself has no run-to-run spread to speak of
    Path(another).write_bytes(TRACE)
    data, by_file, by_stdin = {
        "table": (PROFILE, ["table", result], ["table", "-"]),
        "predict": (PROFILE, ["predict", result], ["predict", "-"]),
        "read": (TRACE, ["read", trace], ["read", "-"]),
        "diff of rows": (
            PROFILE,
            ["diff", f"{result}:eager", f"{result}:triton"],
            ["diff", "stdin:eager", f"{result}:triton"],
        ),
        "diff of traces": (TRACE, ["diff", trace, another], ["diff", trace, "-"]),
    }[verb]
    code, wanted, err = run(capsys, monkeypatch, b"", *by_file)
    assert code == 0, err
    code, out, err = run(capsys, monkeypatch, pack(data), *by_stdin)
    assert (code, err) == (0, "")

    def unnamed(text: str) -> str:
        # Two rows of one stdin cannot be asked for, so that no such command is offered.
        text = "".join(line for line in text.splitlines(keepends=True) if "mlpfusion diff" not in line)
        for name in (
            f"{result}:eager",
            "result.json:eager",
            another,
            trace,
            result,
            "stdin:eager",
            "stdin",
            "result.json",
        ):
            text = text.replace(name, "-")
        return text

    assert unnamed(out).split() == unnamed(wanted).split()


@pytest.mark.parametrize(
    "args",
    [
        ["table", "-"],
        ["predict", "-"],
        ["read", "-"],
        ["diff", "-", "x.json"],
        ["diff", "stdin:a", "x"],
        ["open", "-"],
        ["choose", "-"],
    ],
)
def test_an_empty_stdin_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    code, out, err = run(capsys, monkeypatch, b"", *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "stdin" in err


@pytest.mark.parametrize(
    "args",
    rings.only_first(
        [["table", "-"], ["predict", "-"], ["read", "-"], ["diff", "-", str(RESULT)], ["open", "-"], ["choose", "-"]]
    ),
)
def test_a_terminal_as_stdin_is_one_line(args: list[str]) -> None:
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "mlpfusion", *args]
        done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=120, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mlpfusion: stdin is a terminal; pipe a file into it, or name one\n"


@pytest.mark.parametrize("args", [["read", "-", "-"], ["diff", "-", "-"], ["diff", "stdin:eager", "-"]])
def test_stdin_is_read_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    code, out, err = run(capsys, monkeypatch, PROFILE, *args)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "stdin; only one" in err or "stdin can be read only once" in err


def test_a_result_on_stdin_names_its_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, files: tuple[str, str]
) -> None:
    code, _, err = run(capsys, monkeypatch, PROFILE, "diff", "-", files[1])
    assert code == 2
    assert "stdin:eager, stdin:compile" in err


@pytest.mark.parametrize(
    "data",
    [b"\x1f\x8b", b"\x1f\x8bnothing", gzip.compress(PROFILE, mtime=0)[:-9], gzip.compress(b"x" * 4096, mtime=0)],
    ids=[
        "two bytes",
        "no gzip",
        "cut off",
        "too large",
    ],
)
def test_damaged_or_too_large_gzip_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "r.json.gz"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"damaged gzip|larger than"):
        inputs.read("result file", path, 2048)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_configuration_on_stdin_is_the_model_of_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pack
) -> None:
    config = json.dumps({"model_type": "llama", "hidden_size": 64, "intermediate_size": 80, "dtype": "float16"})
    path = tmp_path / "config.json"
    path.write_text(config)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(config.encode()))))
    by_file, by_stdin = known.find(path), known.find("-")
    assert by_stdin.spec == by_file.spec
    assert (by_stdin.name, by_stdin.source) == ("stdin", "stdin")


@pytest.mark.parametrize(
    "data", [b"[1]", b"{", b"\xff\xfe", b'{"model_type": 3}', b"\0" * 9, b'{"model_type": "bert"}']
)
def test_a_configuration_on_stdin_that_is_none_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, monkeypatch, data, "choose", "-")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("mlpfusion: model configuration 'stdin'")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [TRACE, gzip.compress(TRACE)], ids=["plain", "gzip"])
def test_a_trace_on_stdin_is_served_as_it_came(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: bytes
) -> None:
    served = []

    def fetched(path: Path, **_: object) -> bool:
        served.append(path.read_bytes())
        return True

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(perfetto, "serve", fetched)
    assert run(capsys, monkeypatch, data, "open", "-") == (0, "", "")
    assert served == [data]
    assert list(tmp_path.iterdir()) == []


def test_stdin_that_the_disk_does_not_take_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("shutil.copyfileobj", full)
    code, out, err = run(capsys, monkeypatch, TRACE, "open", "-")
    said = "mlpfusion: stdin cannot be copied to a temporary file: No space left on device\n"
    assert (code, out, err) == (1, "", said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (["profile", "--json", "-"], "--json"),
        (["profile", "--out", "-"], "--out"),
        (["choose", "gemma-2b", "--out", "-"], "--out"),
        (["prove", "-", "--backend", "eager"], "MODEL"),
        (["prove", "nowhere", "--backend", "eager", "--json", "-"], "--json"),
        (["validate", "eager", "--json", "-"], "--json"),
        (["trace", "a.py:f", "--out", "-"], "--out"),
    ],
)
def test_where_no_stream_can_be_a_line_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: list[str], option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, monkeypatch, TRACE, *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{option} needs a path, and '-' is none; a file of that name is './-'" in err
    assert list(tmp_path.iterdir()) == []


# ---- rows of a file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["a.json", "a:b.json", "a.json:triton", "folder"])
@pytest.mark.parametrize("row", ["triton", "./mine.py:Mine", "auto:choices/x.json", "::", "C:\\mine.py:Mine"])
def test_a_row_may_have_colons_and_so_may_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, row: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(path).touch()
    assert inputs.split_row(f"{path}:{row}") == (path, row)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("a.json", ("a.json", "")),
        ("a.json:", ("a.json", "")),
        ("missing.json:eager", ("missing.json", "eager")),
        ("missing.json:./mine.py:Mine", ("missing.json:./mine.py", "Mine")),
        ("-:./mine.py:Mine", ("-", "./mine.py:Mine")),
        (":eager", ("", "eager")),
        ("", ("", "")),
    ],
)
def test_a_text_that_names_no_file_that_is_there(text: str, split: tuple[str, str]) -> None:
    assert inputs.split_row(text) == split
