"""What `mlpfusion tune` prints, saves and refuses."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from mlpfusion_kernels.gate_up import tuned
from support import command, tunings_made
from support.tunings_made import FAST, GPU, SHIPPED, SLOW, Fake, forward

from mlpfusion.cli import main
from mlpfusion.errors import MeasurementError
from mlpfusion.stages.tune import run as tune_run

file = tunings_made.file  # a fixture


# ---- the command -----------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    return command.run(capsys, "tune", *args)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fake]:
    """A GPU that is not there, and what it measures for each number of tokens."""
    benches: dict[str, Fake] = {}
    monkeypatch.setattr("mlpfusion.device.detect", lambda kind: GPU)
    monkeypatch.setattr("mlpfusion.environment.machine._nvidia_smi", lambda device: (None, None, None))
    monkeypatch.setattr(tune_run, "_bench", lambda question, device: benches[str(question.tokens)])
    return benches


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "tune times kernels on a GPU; this run is on the CPU"),
        (["--device", "cuda"], "device 'cuda' is not here: torch sees no GPU"),
        (["--device", "cpu"], "tune times kernels on a GPU"),
        (["--device", "tpu"], "unknown device 'tpu'; valid: cuda, cpu"),
        (["--hidden-size", "0"], "--hidden-size must be an integer from 1 to 2147483647, got '0'"),
        (["--intermediate-size", "many"], "--intermediate-size must be an integer from 1 to 2147483647, got 'many'"),
        (["--activation", "geglu"], "unknown activation 'geglu'; valid: gelu_tanh"),
        (["--dtype", "int8"], "unknown dtype 'int8'; valid: bfloat16"),
        (["--tokens", "1,,2"], "--tokens '1,,2' has an empty name"),
        (["--tokens", "1,x"], "--tokens must be an integer from 1 to 1073741824, got 'x'"),
        (["--tokens", "0x10"], "--tokens must be an integer from 1 to 1073741824, got '0x10'"),
        (
            ["--tokens", "99999999999999999999"],
            "--tokens must be an integer from 1 to 1073741824, got '99999999999999999",
        ),
        (["--tokens", "1,1073741825"], "--tokens must be an integer from 1 to 1073741824, got '1073741825'"),
        (["--tokens", "9" * 5000], "--tokens must be an integer from 1 to 1073741824, got '999"),
        (["--hidden-size", "2147483648"], "--hidden-size must be an integer from 1 to 2147483647, got '2147483648'"),
        (
            ["--intermediate-size", "9" * 20],
            "--intermediate-size must be an integer from 1 to 2147483647, got '99999999999999999999'",
        ),
        (["--tokens", "256,256"], "--tokens names '256' twice"),
        (["--mode", "both"], "unknown mode 'both'; valid: inference, training"),
        (["--time-limit", "0"], "--time-limit must be a number of seconds from 0.001 to 604800, got '0'"),
        (["--format", "pdf"], "unknown format 'pdf'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_tuned_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    args: list[str],
    message: str,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, out, err = run(capsys, *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--hidden-size", "100"], "the fused kernels do not run here: hidden_size must be a multiple of 16, got 100"),
        (["--tokens", "100,128"], "tokens 100 and 128 share one configuration"),
    ],
)
def test_what_the_kernels_do_not_run_is_refused(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], args: list[str], message: str
) -> None:
    code, out, err = run(capsys, *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_file_that_is_none_of_ours_is_not_overwritten(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], file: Path
) -> None:
    file.parent.mkdir()
    file.write_text("notes")
    code, out, err = run(capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is none: it is no JSON" in err
    assert "move it away or delete it" in err
    assert file.read_text() == "notes"


def test_a_folder_that_cannot_be_is_one_line(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], file: Path
) -> None:
    file.parent.write_text("a file in its place")
    code, _, err = run(capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "its directory cannot be made" in err


def test_a_run_prints_its_table_and_says_what_was_saved(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], file: Path
) -> None:
    gpu |= {"256": Fake({SHIPPED: 100.0, FAST: 90.0}), "8192": Fake({SHIPPED: 100.0, SLOW: 120.0})}
    code, out, err = run(capsys, "--tokens", "256,8192")
    assert code == 0
    assert tune_run.describe(FAST) in out
    assert err.splitlines()[-1] == f"1 faster configuration saved in {file}"
    assert forward(m=256) == FAST


def test_a_failed_search_fails_the_run(capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake]) -> None:
    gpu["8192"] = Fake({SHIPPED: 100.0, FAST: 90.0})
    gpu["8192"].interrupt = MeasurementError("no graph")
    code, out, _ = run(capsys, "--tokens", "8192")
    assert code == 1
    assert "failed: no graph" in out


def test_an_interrupt_prints_what_is_finished(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], file: Path
) -> None:
    gpu |= {"256": Fake({SHIPPED: 100.0, FAST: 90.0}), "8192": Fake({SHIPPED: 100.0, SLOW: 120.0})}
    gpu["8192"].interrupt = KeyboardInterrupt()
    code, out, err = run(capsys, "--tokens", "256,8192")
    assert code == 130
    assert tune_run.describe(FAST) in out
    last = err.splitlines()[-1]
    assert last == f"mlpfusion: interrupted; 1 of 2 searches had finished; 1 faster configuration saved in {file}"
    assert tuned.entry_of(tuned.parse(file.read_bytes())[0]).config == FAST


def test_what_memory_does_not_hold_fails_its_row_alone(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], file: Path
) -> None:
    gpu |= {"256": Fake({SHIPPED: 100.0, FAST: 90.0}), "8192": Fake({SHIPPED: 100.0, SLOW: 120.0})}
    gpu["8192"].interrupt = torch.OutOfMemoryError("CUDA out of memory")
    code, out, err = run(capsys, "--tokens", "256,8192")
    assert code == 1
    assert tune_run.describe(FAST) in out
    assert "forward, 8192 tokens: failed: OutOfMemoryError: CUDA out of memory" in out
    assert err.splitlines()[-1] == f"1 faster configuration saved in {file}"
    assert forward(m=256) == FAST


def test_a_disk_that_takes_no_more_ends_the_run_in_one_line_below_the_table(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu |= {str(m): Fake({SHIPPED: 100.0, FAST: 90.0}) for m in (64, 256, 8192)}
    fsync, calls = os.fsync, iter(range(9))

    def full(number: int) -> None:
        if next(calls) == 1:
            raise OSError(28, "No space left on device")
        fsync(number)

    monkeypatch.setattr(os, "fsync", full)
    code, out, err = run(capsys, "--tokens", "64,256,8192")
    assert code == 1
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith("forward  ")}
    assert sorted(rows) == ["256", "64"]
    assert rows["64"].endswith("best")
    assert "1.11x" in rows["256"]  # what was found, though it could not be kept
    assert "forward, 256 tokens: failed: not saved: cannot write file of tuned configurations" in out
    last = err.splitlines()[-1]
    assert last.startswith("mlpfusion: cannot write file of tuned configurations")
    ending = "No space left on device; 2 of 3 searches had finished; 1 faster configuration saved in "
    assert last.endswith(ending + str(file))
    assert "Traceback" not in err
    assert forward(m=64) == FAST
    assert forward(m=256) != FAST


def test_a_fault_of_the_program_costs_no_finished_row(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu |= {str(m): Fake({SHIPPED: 100.0, FAST: 90.0}) for m in (64, 256)}
    keep = tune_run.keep

    def faulty(path: Path, found: tune_run.Found, card: object) -> None:
        if found.answer.question.tokens == 256:
            raise ZeroDivisionError
        keep(path, found, card)

    monkeypatch.setattr(tune_run, "keep", faulty)
    with pytest.raises(ZeroDivisionError):
        main.main(("tune", "--tokens", "64,256"))
    assert tune_run.describe(FAST) in capsys.readouterr().out


def test_nothing_is_tuned_by_a_call() -> None:
    """No module that a call goes through imports the search."""
    package = Path(tuned.__file__).parents[1]
    search = re.compile(r"^ *(from \S*\bsearch import|from \S+ import .*\bsearch\b)", re.MULTILINE)
    importing = {path.name for path in package.rglob("*.py") if search.search(path.read_text(encoding="utf-8"))}
    assert importing == set()
