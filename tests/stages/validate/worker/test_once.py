"""The process that runs a target once says which passes it called."""

from __future__ import annotations

import sys

import pytest

from mlpfusion.stages.validate.channel import CALLED
from mlpfusion.stages.validate.judge import self_test
from mlpfusion.stages.validate.worker import once


@pytest.mark.parametrize(
    ("target", "called"),
    [
        ("eager", "forward and backward"),
        ("mlp", "forward and backward"),
        ("exact_exp", "forward"),
    ],
)
def test_it_says_what_it_called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, target: str, called: str
) -> None:
    arguments = [f"{self_test.folder()}/good.py:{target}", "gelu_tanh", "float32", "3", "cpu", ""]
    monkeypatch.setattr(sys, "argv", ["once", *arguments])
    monkeypatch.setattr(sys, "path", list(sys.path))
    once.main()
    assert capsys.readouterr().out == f"{CALLED}{called}\n"
