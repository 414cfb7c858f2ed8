"""Runs a command line in this process, as it would be typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.cli import main

if TYPE_CHECKING:
    import pytest


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """The exit code, and what reached stdout and stderr."""
    code = main.main(args)
    return code, *capsys.readouterr()


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The single line with which a command refuses."""
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert err.startswith("mlpfusion: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err
