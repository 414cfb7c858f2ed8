"""Help: it fits a terminal, and offers exactly what a verb takes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer
from support.command import run

from mlpfusion.cli import main
from mlpfusion.models import known

COMMANDS: dict[str, Any] = typer.main.get_command(main.app).commands  # type: ignore[attr-defined]
# Arguments with which a verb comes to look at its options.
ARGUMENTS = {
    "choose": ["--hidden-size", "8", "--intermediate-size", "8"],
    "compare": ["a", "b"],
    "diff": ["a", "b"],
    "explain": ["kernel"],
    "open": ["a.json"],
    "plot": ["a.json", "--figure", "ratios", "-o", "f.json"],
    "predict": ["a.json"],
    "prove": ["model", "--backend", "eager"],
    "read": ["a.json"],
    "merge": ["a", "--out", "b"],
    "sweep": ["study.toml"],
    "scrub": ["a.json", "--out", "b.json"],
    "table": ["a.json"],
    "trace": ["script.py:main"],
    "validate": ["triton"],
}
CHOICES = [
    pytest.param(name, option.opts[0], option.metavar, id=f"{name}{option.opts[0]}")
    for name, command in COMMANDS.items()
    for option in command.params
    if "|" in (option.metavar or "")
    and option.metavar == option.metavar.replace("|-", "").replace("|none", "")
    and "ADDRESS" not in option.metavar
]


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_fits_a_terminal(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    code, out, err = run(capsys, verb, "--help")
    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 80


def test_a_summary_is_whole_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    listed = dict(line.split(maxsplit=1) for line in out.split("Commands:\n")[1].splitlines())
    assert list(listed) == list(COMMANDS)
    for verb, summary in listed.items():
        assert summary == (COMMANDS[verb].help or "").split("\n")[0]
        assert len(summary) <= 45, verb
        assert summary.endswith(".")
        assert "..." not in summary


@pytest.mark.parametrize(("verb", "option", "metavar"), CHOICES)
def test_what_an_option_offers_is_what_it_takes(
    capsys: pytest.CaptureFixture[str], verb: str, option: str, metavar: str
) -> None:
    code, out, err = run(capsys, verb, *ARGUMENTS.get(verb, []), option, "nonsense")
    assert (code, out) == (2, "")
    valid = re.search(r"valid: ([\w, ]+)", err)
    assert valid, err
    offered = [each for each in metavar.split("|") if each != "CARD"]
    assert valid[1].split(", ")[: len(offered)] == offered, err
    assert "CARD" in metavar or valid[1].split(", ") == offered, err


def test_choose_offers_the_known_models(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "choose", "--help")
    listed = re.search(r"Known models: (.*?)\.\n\n", out, re.DOTALL)
    assert listed
    assert " ".join(listed[1].split()).split(", ") == list(known.models())
