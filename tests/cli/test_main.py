"""The command line as a whole: its help, its version, and what is answered to a word that is none of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import typer
from support.command import refused, run

from mlpfusion.cli import main

if TYPE_CHECKING:
    import pytest


def test_help_stays_light() -> None:
    code = "import sys; from mlpfusion.cli.main import main; main(['--help']); print([*sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    loaded = set(done.stderr.replace("'", "").strip("[]\n").split(", "))
    assert done.returncode == 0
    # msgspec, some 20 ms, comes with the table of activations that the help lists.
    assert not loaded & {"torch", "rich", "triton", "numpy", "tabulate"}


def test_unknown_options_and_commands_are_answered_with_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "profile", "--frobnicate")
    assert "--frobnicate" in said
    assert "valid: --batch, --seq, --hidden-size, --intermediate-size" in said
    said = refused(capsys, "profiel")
    assert "profiel" in said
    assert "valid: profile, backends, table" in said
    assert "RESULT" in refused(capsys, "table")
    assert "valid: --version, --help" in refused(capsys, "--frobnicate")


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for args in ([], ["--help"]):
        code, out, err = run(capsys, *args)
        assert (code, err) == (0, "")
        assert all(verb in out for verb in ("profile", "backends", "table"))
    code, out, _ = run(capsys, "profile", "--help")
    assert code == 0
    assert "--time-limit" in out
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith("mlpfusion 0.")


COMMANDS: dict[str, Any] = typer.main.get_command(main.app).commands  # type: ignore[attr-defined]


def test_the_command_alone_says_what_to_try_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("Try first:\n")
    assert "\nCommands:\n" in out
    tried = [line.split() for line in out.split("\n\n")[0].splitlines()[1:]]
    assert len(tried) >= 3
    for name, verb, *rest in tried:
        assert name == "mlpfusion"
        options = {option for param in COMMANDS[verb].params for option in param.opts}
        assert {word for word in rest if word.startswith("--")} <= options
    assert max(len(line) for line in out.splitlines()) <= 80
