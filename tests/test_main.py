"""`python -m mlpfusion`: Ctrl-C and a package that is missing have their one line."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from mlpfusion import __main__ as command


def runs(monkeypatch: pytest.MonkeyPatch, error: BaseException | None, code: int = 0) -> None:
    """Put a command line in the place of ours."""

    def main() -> int:
        if error is not None:
            raise error
        return code

    monkeypatch.setitem(sys.modules, "mlpfusion.cli.main", SimpleNamespace(main=main))
    monkeypatch.setattr("mlpfusion.workers.interrupts.end_quietly", lambda: None)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_its_exit_code_is_that_of_the_command(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    runs(monkeypatch, None, code)
    assert command.main() == code


def test_an_early_interrupt_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    runs(monkeypatch, KeyboardInterrupt())
    assert command.main() == 130
    assert capsys.readouterr().err == "mlpfusion: interrupted; nothing was saved\n"


def test_without_a_stderr_an_interrupt_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, KeyboardInterrupt())
    monkeypatch.setattr(sys, "stderr", None)
    assert command.main() == 130


def test_the_command_that_is_interrupted_does_not_take_down_what_it_imported() -> None:
    code = (
        "import atexit, sys, types; atexit.register(print, 'taken down'); "
        "main = lambda: print('said', end='') or int(sys.argv[1]); "
        "sys.modules['mlpfusion.cli.main'] = types.SimpleNamespace(main=main); "
        "from mlpfusion.__main__ import command; sys.exit(command())"
    )
    for given, said in ((130, "said"), (1, "saidtaken down\n")):
        done = subprocess.run([sys.executable, "-c", code, f"{given}"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (given, said, "")


@pytest.mark.parametrize("missing", ["msgspec", "msgspec.json"])
def test_a_required_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    runs(monkeypatch, ModuleNotFoundError("no", name=missing))
    assert command.main() == 2
    assert capsys.readouterr().err == "mlpfusion: this needs msgspec, which is not installed: pip install msgspec\n"


@pytest.mark.parametrize("missing", ["somebodys_module", None])
def test_any_other_missing_module_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch, missing: str | None) -> None:
    runs(monkeypatch, ModuleNotFoundError("no", name=missing))
    with pytest.raises(ModuleNotFoundError):
        command.main()


def test_the_module_runs_as_a_command_and_ends_with_its_exit_code() -> None:
    typed = [sys.executable, "-m", "mlpfusion", "table", "nowhere.json"]
    done = subprocess.run(typed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mlpfusion: result file 'nowhere.json' does not exist\n"
