"""What may be asked of the validator: by the command, from pytest, and what has a name that another process finds."""

from __future__ import annotations

import functools
import importlib
import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from support import overflowing, targets_made
from support.targets_made import written

from mlpfusion.cli.main import main
from mlpfusion.errors import UsageError
from mlpfusion.limits import SHAPE
from mlpfusion.records.validation import Control, Judged, Verdict
from mlpfusion.stages.validate.judge import examine, self_test
from mlpfusion.stages.validate.run import validate
from mlpfusion.storage import private
from mlpfusion.testing import assert_valid, name_of

if TYPE_CHECKING:
    from pathlib import Path


CONTROLS = self_test.folder()
GOOD = "def good(gate, up):\n    return F.gelu(gate, approximate='tanh') * up\n"


bench = targets_made.bench  # a fixture


def ran_by_pytest(path: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """pytest on one file, as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path],
        capture_output=True,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST")},
        cwd=folder,
        check=False,
    )


# ---- what may be asked -----------------------------------------------------------------------------------------------


def product(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.gelu(gate, approximate="tanh") * up


WRONG = [
    ({"shapes": [8, 8]}, r"shapes must be a list of shapes such as \[\(7, 127\), \(64,\)\], got \[8, 8\]"),
    ({"shapes": [(2, -1)]}, f"a size of shapes must be {SHAPE}, got -1"),
    ({"shapes": [(2.0, 4)]}, f"a size of shapes must be {SHAPE}, got 2.0"),
    ({"shapes": []}, "shapes must hold at least one"),
    (
        {"shapes": [(SHAPE.most, 2)]},
        f"shape {SHAPE.most}x2 has {2 * SHAPE.most} elements; .* takes {SHAPE.most} at most",
    ),
    ({"dtypes": "bf16"}, r"dtypes must be a list such as \['bfloat16', 'float32'\], got 'bf16'"),
    ({"only": "function"}, "only must be a list of texts, got 'function'"),
]


@pytest.mark.parametrize(("asked", "words"), WRONG)
def test_what_cannot_be_asked_is_said_in_one_line(asked: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=f"^{words}.*$") as refused:
        assert_valid(product, device="cpu", **asked)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("target", [None, 3, functools.partial(product), torch.nn.GELU(), lambda gate, up: gate])
def test_what_has_no_name_is_no_target(target: object) -> None:
    with pytest.raises(UsageError, match="another process cannot find"):
        name_of(target)


class Mine:
    def bind(self, module: object) -> None: ...


def test_names_are_those_of_files_unless_a_package_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name_of(Mine()) == name_of(Mine)
    assert name_of(name_of) == "mlpfusion.testing:name_of"
    assert name_of(torch.library.custom_op("mine::named", product, mutates_args=())) == name_of(product)
    path = written(tmp_path / "apart", GOOD, "apart_package/inner.py")
    written(tmp_path / "apart", "", "apart_package/__init__.py")
    alone = written(tmp_path / "apart", GOOD, "apart_alone.py")
    monkeypatch.syspath_prepend(tmp_path / "apart")  # as pytest does
    inner = importlib.import_module("apart_package.inner")
    assert name_of(inner.good) == f"{path}:good"
    assert name_of(importlib.import_module("apart_alone").good) == f"{alone}:good"
    monkeypatch.chdir(tmp_path / "apart")
    assert name_of(inner.good) == "apart_package.inner:good"


@pytest.mark.full  # as below
def test_a_function_of_a_package_below_the_folder_of_pytest_is_found(tmp_path: Path) -> None:
    text = """
    from mlpfusion.testing import assert_valid
    from .mine import good

    def local(gate, up):
        return good(gate, up)

    def test_mine():
        assert assert_valid(local, device="cpu", dtypes=["float32"], only=["function"]).word == "valid"
    """
    written(tmp_path, "", "sub/pkg/__init__.py")
    written(tmp_path, GOOD, "sub/pkg/mine.py")
    path = written(tmp_path, text, "sub/pkg/test_k.py")
    done = ran_by_pytest(path, tmp_path)
    assert done.returncode == 0, done.stdout


MODULES = """
class Other(torch.nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.w1 = torch.nn.Linear(dim, hidden_dim, bias=False)

    def forward(self, x):
        return self.w1(x)

class Config(torch.nn.Module):
    def __init__(self, config, layer=0):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.no_such_size, bias=False)

    def forward(self, x):
        return x

class Needy(torch.nn.Module):
    def __init__(self, size):
        super().__init__()

    def forward(self, gate, up):
        return gate * up

def good(gate, up):
    return F.gelu(gate, approximate="tanh") * up
"""
USAGE = [
    (["{mine}:Other"], "has no gate_proj, up_proj and down_proj"),
    (["{mine}:Config"], "Config cannot be built as Config(config)"),
    (["{mine}:Needy"], "and Needy needs (size)"),
    ([""], "target '' lacks a file or module"),
    ([":good"], "target ':good' lacks a file or module"),
    (["{mine}:"], "lacks a name"),
    (["{empty}"], "is no Hub kernel"),
    (["@eager:act_mul"], "unknown target '@eager:act_mul'"),
    (["{mine}:", "nope", "@eager:act_mul"], "lacks a name"),
    (["{mine}:good", "--against", "@eager:act_mul"], "unknown target '@eager:act_mul'"),
    (["{mine}:good", "--against", "foo"], "unknown baseline 'foo'; valid: eager, inductor, a target"),
    (["{mine}:good", "--against", "{mine}:nope"], "there is no 'nope'"),
    (["{mine}:good", "--shapes", "99999999x99999999"], f"takes {SHAPE.most} at most"),
    (["--self-test", "--only", "runs", "--strict"], "--self-test does not take --only, --strict"),
    (["--self-test", "--shapes", "3", "--dtype", "fp32", "--against", "none"], "--dtype, --shapes, --against"),
]


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize(("arguments", "words"), USAGE, ids=[" ".join(arguments) for arguments, _ in USAGE])
def test_a_wrong_use_of_the_command_is_code_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    mine = written(tmp_path, MODULES)
    (tmp_path / "empty").mkdir()
    typed = [argument.format(mine=mine, empty=tmp_path / "empty") for argument in arguments]
    assert main(["validate", *typed, "--device", "cpu", *([] if "--self-test" in typed else ["--only", "runs"])]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


NO_TARGETS = ["", ":good", "{mine}:", "{mine}:nope", "{mine}:Other", "nope", "@eager:act_mul", "{empty}", "no.py:f"]


@pytest.mark.usefixtures("bench")
def test_beside_others_what_is_no_target_is_a_verdict_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = written(tmp_path, MODULES)
    (tmp_path / "empty").mkdir()
    bad = [text.format(mine=mine, empty=tmp_path / "empty") for text in NO_TARGETS]
    result = tmp_path / "verdict.json"
    asked = ["--device", "cpu", "--only", "function", "--dtype", "fp32", "--against", "none", "--json", str(result)]
    assert main(["validate", *bad[:4], f"{mine}:good", *bad[4:], *asked]) == 1
    assert capsys.readouterr().out.count("NOT VALID: loads: it is no target: ") == len(bad)
    found = json.loads(result.read_text(encoding="utf-8"))["verdicts"]
    named = [*bad[:4], f"{mine}:good", *bad[4:]]
    assert [each["target"] for each in found] == list(private.last_parts(named).values())
    assert [each["word"] for each in found] == ["not valid"] * 4 + ["valid"] + ["not valid"] * (len(bad) - 4)


# ---- progress --------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize("stream", [io.StringIO, Terminal], ids=["piped", "terminal"])
def test_progress_is_a_line_for_each_check_or_one_that_is_written_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stream: type[io.StringIO],
) -> None:
    mine, err = written(tmp_path, GOOD), stream()
    monkeypatch.setattr(sys, "stderr", err)
    asked = ["--only", "function,deterministic", "--dtype", "fp32", "--against", "none"]
    assert main(["validate", f"{mine}:good", "--device", "cpu", *asked]) == 0
    names = [f"{name} float32 ({number} of 3)" for number, name in enumerate(("runs", "deterministic", "function"), 1)]
    said = err.getvalue()
    assert capsys.readouterr().out.startswith(f"{mine}:good (act·mul, gelu_tanh)\n")
    if stream is Terminal:
        assert "\n" not in said
        assert said.endswith("\r")
        assert max(map(len, said.split("\r"))) < 80
        return
    assert said.splitlines() == [f"{mine}:good: {name}: pass" for name in names]


# ---- interrupts ------------------------------------------------------------------------------------------------------


def verdict_on(target: str) -> Verdict:
    return Verdict(target=target, kind="act_mul", activation="silu", word="valid", headline=f"of {target}")


@pytest.mark.parametrize("finished", [0, 1, 2])
@pytest.mark.usefixtures("bench")
def test_an_interrupt_keeps_the_verdicts_that_were_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], finished: int
) -> None:
    reached: list[str] = []

    def examined(bench: object, order: examine.Order, *rest: object, **asked: object) -> Verdict:
        if len(reached) == finished:
            raise KeyboardInterrupt
        reached.append(order.target)
        return verdict_on(order.target)

    monkeypatch.setattr(examine, "examine", examined)
    mine, result = written(tmp_path, GOOD), tmp_path / "verdict.json"
    targets = [f"{mine}:good", "nope", "eager"]
    code = main(["validate", *targets, "--device", "cpu", "--json", str(result)])
    said = capsys.readouterr()
    assert code == 130
    assert said.err.count("\n") == 1
    if not finished:
        assert said.err == "mlpfusion: interrupted; nothing was saved\n"
        assert (said.out, result.exists()) == ("", False)
        return
    left = ", ".join(targets[finished:])
    assert f"interrupted; {finished} of 3 judged and in {str(result)!r}; not judged: {left}" in said.err
    assert f"NOT JUDGED, since it was interrupted: {left}" in said.out
    saved = json.loads(result.read_text(encoding="utf-8"))
    assert [each["target"] for each in saved["verdicts"]] == ["mine.py:good", "nope"][:finished]
    assert saved["not_judged"] == targets[finished:]


@pytest.mark.usefixtures("bench")
def test_an_interrupt_keeps_the_controls_that_were_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [control.name for control in self_test.controls()]

    def judged(bench: object, control: Control, **asked: object) -> Judged:
        if control.name == names[2]:
            raise KeyboardInterrupt
        return Judged(control=control, verdict=verdict_on(control.target))

    monkeypatch.setattr(self_test, "judge", judged)
    result = tmp_path / "self-test.json"
    assert main(["validate", "--self-test", "--device", "cpu", "--json", str(result)]) == 130
    said = capsys.readouterr()
    assert f"{len(names) - 2} not judged since it was interrupted" in said.out
    assert f"interrupted; 2 of {len(names)} judged" in said.err
    assert json.loads(result.read_text(encoding="utf-8"))["not_judged"] == names[2:]


# ---- the command and pytest ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("bench")
def test_exit_codes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def code(target: str, *options: str) -> int:
        return main(["validate", target, "--device", "cpu", "--against", "none", *options])

    result = tmp_path / "verdict.json"
    assert code(f"{CONTROLS / 'good.py'}:eager", "--only", "function", "--dtype", "fp32", "--json", str(result)) == 0
    assert json.loads(result.read_text(encoding="utf-8"))["verdicts"][0]["word"] == "valid"
    assert code(f"{CONTROLS / 'numeric.py'}:silu", "--only", "function", "--dtype", "fp32") == 1
    hazardous = (f"{CONTROLS / 'gradients/backward.py'}:saved_overwritten", "--only", "saved-kept", "--dtype", "fp32")
    assert code(*hazardous) == 0
    assert "VALID WITH HAZARDS" in capsys.readouterr().out
    assert code(*hazardous, "--strict") == 1
    capsys.readouterr()
    for bad in (["nope"], ["eager", "--only", "zz"], ["eager", "--shapes", "3y"], ["eager", "--seed", "-1"], []):
        assert main(["validate", *bad, "--device", "cpu"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.full  # Inductor compiles one of them
@pytest.mark.usefixtures("bench")
def test_peers_are_set_beside_the_target(tmp_path: Path) -> None:
    found = validate(
        [f"{CONTROLS / 'good.py'}:tanh_form"],
        device="cpu",
        only=["function"],
        dtypes=["float32"],
        json=tmp_path / "beside.json",
    )
    mine, eager, inductor = found.verdicts[0].peers
    assert (mine.name, eager.name, inductor.name) == ("this target", "eager", "inductor")
    assert all(0 < (peer.scores["float32"] or 0) < 2 for peer in (mine, eager, inductor))
    assert eager.speed is None
    assert "GPU" in (eager.reason or "")
    assert inductor.source is not None
    assert "cpp_fused" in (tmp_path / inductor.source).read_text(encoding="utf-8")


@pytest.mark.values
@pytest.mark.usefixtures("bench")
def test_assert_valid_says_why_with_the_smallest_shape_and_a_command() -> None:
    target = f"{CONTROLS / 'numeric.py'}:cubic_044"
    with pytest.raises(AssertionError) as wrong:
        assert_valid(target, device="cpu", only=["constants", "elementwise"], dtypes=["float32"], quick=True)
    said = str(wrong.value)
    assert "NOT VALID: constants (float32): the cubic coefficient is 0.044 where 0.044715 belongs" in said
    assert "1 check follows from this: elementwise [float32]" in said
    assert "mlpfusion validate" in said
    assert "--only constants --seed" in said
    good = f"{CONTROLS / 'good.py'}:eager"
    assert assert_valid(good, device="cpu", only=["function"], dtypes=["float32"]).word == "valid"


def test_a_function_is_found_by_its_name_in_another_process() -> None:
    from mlpfusion_kernels import act_mul

    assert name_of(act_mul) == "mlpfusion_kernels.elementwise.autograd:act_mul"
    with pytest.raises(UsageError, match="defined inside a function"):
        name_of(lambda gate, up: gate * up)


@pytest.mark.full  # pytest and two workers, each of which imports PyTorch
@pytest.mark.values
@pytest.mark.parametrize("library", ["as it is", "oneDNN's under AVX-512"])
def test_assert_valid_in_a_third_party_s_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    if library != "as it is":
        overflowing.in_workers(tmp_path, monkeypatch, overflowing.ONEDNN)
    text = """
    from mlpfusion.testing import assert_valid


    def gelu_mul(gate, up):
        return F.gelu(gate) * up


    def test_mine():
        assert_valid(gelu_mul, device="cpu", dtypes=["float32"], only=["function"])
    """
    path = written(tmp_path, text, "test_mine.py")
    done = ran_by_pytest(path, tmp_path)
    assert done.returncode == 1
    assert "this is another function: every value is the exact (erf) GELU" in done.stdout
