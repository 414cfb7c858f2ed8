"""Closed, full and narrow streams, and an early Ctrl-C, each cost one line at most and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import rings
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
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("mlpfusion: ")
    assert "No space left on device" in done.stderr


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
    assert 'mlpfusion = "mlpfusion.__main__:main"' in project


def test_control_characters_do_not_reach_the_terminal_by_an_error_either() -> None:
    done = shell(f"{COMMAND} table $'a\\x1b[2J.json'")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
