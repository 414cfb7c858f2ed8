"""Closed, full and narrow streams, and an early Ctrl-C, each cost one line at most and no traceback."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import rings
from support.comparisons_made import raced, saved
from support.paths import DATA, RESULTS, ROOT

from mlpfusion.cli import streams
from mlpfusion.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

RESULT = RESULTS / "h200-article.json"
TRACE = DATA / "h200_eager.json.gz"
COMMAND = f"{sys.executable} -m mlpfusion"
ASCII = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1:strict"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


def shell(line: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """What a shell makes of a line; its exit code is that of our command, also in a pipe."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        encoding="latin-1",
        check=False,
        env={**os.environ, **changes},
    )


@pytest.mark.parametrize(
    "what",
    [
        *rings.only_first(["--help", "table --help", "--version", "explain a"]),
        *rings.only_first([f"table {RESULT}", f"read {TRACE}"]),
        *rings.only_first(
            [f"read {TRACE} {DATA / 'h200_compile.json.gz'} --json -", f"diff {TRACE} {TRACE} --format json"]
        ),
    ],
)
@pytest.mark.parametrize("reader", ["true", "head -c 1"])
def test_a_reader_that_leaves_early_is_no_error(what: str, reader: str) -> None:
    done = shell(f"{COMMAND} {what} | {reader}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "what", rings.only_first([f"table {RESULT}", "--help", f"table {RESULT} --format json", "explain a"])
)
def test_a_full_disk_is_one_line(what: str) -> None:
    done = shell(f"{COMMAND} {what} > /dev/full")
    assert done.returncode == 2  # 1 would say that something was judged, and is bad
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("mlpfusion: ")
    assert "No space left on device" in done.stderr


class Broken(io.StringIO):
    """A stdout that fails."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def flush(self) -> None:
        raise OSError(self.number, os.strerror(self.number))


VERBS = ["table A", "compare A B", "explain a", "cite A", "reproduce A", "--version", "table A --format csv"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EPIPE])
def test_the_exit_code_of_a_stdout_that_fails(verb: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is 2, for every verb; a reader that left changes no verdict: 1 where B is slower."""
    named = {"A": str(RESULT), "B": str(RESULTS / "h200-choose-article" / "inference-8192.json")}
    args = [named.get(each, each) for each in verb.split()]
    monkeypatch.setattr(streams, "silence", lambda stream: monkeypatch.setattr(sys, "stdout", io.StringIO()))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    judged = main(args)
    monkeypatch.setattr(sys, "stdout", Broken(number))
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    assert main(args) == (judged if number == errno.EPIPE else 2)
    assert err.getvalue() == (
        "" if number == errno.EPIPE else f"mlpfusion: cannot write to stdout: {os.strerror(number)}\n"
    )


def test_a_regression_whose_reader_left_is_one_still(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a, b = (saved(tmp_path, f"{name}.json", raced({"triton": by})) for name, by in (("a", 0.9), ("b", 1.2)))
    monkeypatch.setattr(streams, "silence", lambda stream: monkeypatch.setattr(sys, "stdout", io.StringIO()))
    monkeypatch.setattr(sys, "stdout", Broken(errno.EPIPE))
    assert main(["compare", a, b]) == 1


@pytest.mark.parametrize("fmt", ["text", "github", "csv"])
@pytest.mark.parametrize("steering", ["\x1b[2J", "\u202e", "\x9b", "\x07"])
def test_a_name_steers_no_terminal(fmt: str, steering: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, "a.json", raced({f"mine{steering}": 0.9}))
    for args in (["table", path], ["table", path, "--columns", "speed"], ["compare", "--self", path]):
        if fmt != "csv" or args[0] == "table":
            assert main([*args, "--format", fmt]) == 0
    for args in (["table", path], ["compare", "--self", path], ["table", path, "--columns", "speed"]):
        assert main([*args, "--format", "json"]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()


def test_a_closed_stdout_is_refused_before_any_work() -> None:
    done = shell(f"{COMMAND} table nowhere.json >&-")
    assert (done.returncode, done.stderr) == (2, "mlpfusion: stdout is closed; give it a file or /dev/null\n")
    assert shell(f"{COMMAND} table {RESULT} >&- 2>&-").returncode == 2


def test_a_closed_stderr_changes_nothing() -> None:
    done = shell(f"{COMMAND} table {RESULT} 2>&-")
    assert done.returncode == 0
    assert done.stdout == shell(f"{COMMAND} table {RESULT}").stdout


@pytest.mark.parametrize("stderr", rings.only_first(["2>&-", "2>/dev/full", "2>&1 | true"]))
def test_nor_does_one_that_takes_no_refusal(stderr: str) -> None:
    assert shell(f"{COMMAND} table nowhere.json {stderr}").returncode == 2


def test_a_closed_stdin_is_an_empty_one() -> None:
    done = shell(f"{COMMAND} read - <&-")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("narrow", rings.only_first(ASCII), ids=str)
def test_an_encoding_without_our_letters_gets_others(narrow: dict[str, str]) -> None:
    done = shell(f"{COMMAND} table {RESULT}", **narrow)
    assert (done.returncode, done.stderr) == (0, "")
    assert "[240.6-242.7]" in done.stdout
    assert "batch 64" in done.stdout
    done = shell(f"{COMMAND} table 'µ�\udcff–.json'", **narrow)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_letters_of_a_column_stay_one_letter_each() -> None:
    streams.prepare()
    assert "2 µs × 3 – 4 → 5".encode("ascii", "mlpfusion.spelled") == b"2 us x 3 - 4 > 5"
    assert "é\udcff".encode("ascii", "mlpfusion.spelled") == b"\\xe9\\udcff"


@pytest.mark.parametrize(
    "options", rings.only_first(["--out /proc/foo", f"--out {'n' * 300}", f"--json {'n' * 300}", "--json /proc/r"])
)
def test_a_place_that_takes_no_file_is_refused_in_one_line(options: str, tmp_path: Path) -> None:
    done = shell(f"cd {tmp_path}; {COMMAND} profile --backends eager {options}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", ["0", "-1", "-0.5", "inf", "-inf", "nan", "1e999"])
def test_limits_that_are_none(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--rounds", "--time-limit"):
        assert main(["profile", option, number]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        limit = "an integer from 1 to 100000" if option == "--rounds" else "a number of seconds from 0.001 to 604800"
        assert printed.err == f"mlpfusion: {option} must be {limit}, got '{number}'\n"


@pytest.mark.parametrize("name", ["mlpfusion.cli.main", "typer", "mlpfusion.storage.results"])
def test_an_interrupt_while_modules_are_imported_is_one_line(name: str) -> None:
    code = f"""
import runpy, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
sys.argv = ["mlpfusion", "table", {str(RESULT)!r}]
runpy.run_module("mlpfusion", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mlpfusion: interrupted; nothing was saved\n")


def test_the_installed_command_starts_where_the_interrupt_is_caught() -> None:
    project = (ROOT / "packages" / "read" / "pyproject.toml").read_text(encoding="utf-8")
    assert 'mlpfusion = "mlpfusion.__main__:command"' in project


def test_control_characters_do_not_reach_the_terminal_by_an_error_either() -> None:
    done = shell(f"{COMMAND} table $'a\\x1b[2J.json'")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
