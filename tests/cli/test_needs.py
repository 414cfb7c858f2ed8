"""Which verbs run with mlpfusion-read alone, and what the others say is to be installed."""

from __future__ import annotations

import pytest

from mlpfusion.cli import main, needs
from mlpfusion.errors import UsageError

VERBS = sorted(str(command.name) for command in main.app.registered_commands)


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    found = needs.util.find_spec
    monkeypatch.setattr(needs.util, "find_spec", lambda name: None if name in names else found(name))


def test_every_reader_is_a_verb() -> None:
    assert set(needs.READERS) < set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_without_torch_only_readers_run(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "torch", "mlpfusion.module")
    if verb in needs.READERS:
        needs.check_installed(verb)
        return
    with pytest.raises(
        UsageError, match=f"^`mlpfusion {verb}` needs torch, which is not installed: pip install mlpfusion$"
    ):
        needs.check_installed(verb)


def test_with_torch_and_without_our_own_modules_these_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "mlpfusion.module")
    with pytest.raises(UsageError, match=r"needs mlpfusion\.module, which"):
        needs.check_installed("profile")


@pytest.mark.parametrize("verb", VERBS)
def test_with_everything_all_run(verb: str) -> None:
    needs.check_installed(verb)


def test_the_command_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    without(monkeypatch, "torch", "mlpfusion.module")
    assert main.main(["profile"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
