"""The verbs of profiles: what is refused and in which words, what reaches the measurement, stdout and stderr."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support.command import refused, run
from support.profiles_made import on_a_cpu, timed

from mlpfusion import backend
from mlpfusion.cli.text import quoting_briefly
from mlpfusion.device import Device
from mlpfusion.records.environment import Process
from mlpfusion.records.profile import Profile, Row
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages import profile as profile_stage
from mlpfusion.stages.profile import plan
from mlpfusion.storage import results

CPU = Device(kind="cpu", name="a CPU")
SMALL = Workload(spec=MLPSpec(hidden_size=64, intermediate_size=128), batch=2, seq=16)
OK = Row(backend="eager", status="ok")
FAILED = Row(backend="triton", status="failed", reason="numerically wrong")
UNAVAILABLE = Row(backend="liger", status="unavailable", reason="no GPU")
EMULATED = Row(backend="triton", status="ok", emulated=True, reason="emulated: no times")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stands in for `mlpfusion.stages.profile.run`: measures nothing and remembers what it was asked for."""
    fake = SimpleNamespace(asked=None, rows=(OK,), raises=None)

    def profile(workload: Workload, **asked: Any) -> Profile:
        fake.asked = {"workload": workload, **asked}
        asked["on_event"](SimpleNamespace(stage="qualify", backend="eager", text="ok\nin 0.1 s"))
        for path in (asked["json"], asked["out"] and asked["out"] / results.RESULT_NAME):
            if path is not None and fake.rows:
                path.parent.mkdir(parents=True, exist_ok=True)
                results.save(on_a_cpu(*fake.rows, workload=workload, complete=fake.raises is None), path)
        if fake.raises is not None:
            raise fake.raises
        return on_a_cpu(*fake.rows, workload=workload)

    fake.profile, fake.default_workload = profile, lambda device: SMALL
    monkeypatch.setitem(sys.modules, "mlpfusion.stages.profile.run", fake)
    monkeypatch.setattr(profile_stage, "run", fake, raising=False)
    monkeypatch.setattr("mlpfusion.device._cpu", lambda: CPU)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    return fake


SIZES = ("--batch", "--seq", "--hidden-size", "--intermediate-size")
MOST = {"--rounds": 100_000, "--processes": 30} | dict.fromkeys(SIZES, 2**31 - 1)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [*SIZES, "--rounds", "--processes"])
@pytest.mark.parametrize("value", ["0", "-3", "1.5", "many", "", "1e3", "0x10", "٣"])
def test_a_size_that_is_no_positive_integer(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, option: str, value: str
) -> None:
    wanted = f"{option} must be an integer from 1 to {MOST[option]}, got {value!r}"
    assert wanted in refused(capsys, "profile", option, value)
    assert api.asked is None


@pytest.mark.parametrize("option", [*SIZES, "--rounds", "--processes"])
@pytest.mark.parametrize("value", [str(2**31), "9" * 20, "0" * 30 + "9" * 20, "9" * 5000])
def test_a_size_that_is_too_large_names_the_limit(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, option: str, value: str
) -> None:
    wanted = quoting_briefly(f"{option} must be an integer from 1 to {MOST[option]}, got {value!r}")
    assert wanted in refused(capsys, "profile", option, value)
    assert api.asked is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--activation", "geglu"], "unknown activation 'geglu'; valid: gelu_tanh, gelu, silu, "),
        (["--dtype", "int8"], "unknown dtype 'int8'; valid: bfloat16, float16, float32"),
        (["--mode", "train"], "unknown mode 'train'; valid: inference, training"),
        (["--device", "tpu"], "unknown device 'tpu'; valid: cuda, cpu"),
        (["--format", "latex"], "unknown format 'latex'; valid: text, github, csv, json"),
        (["--time-limit", "0"], "--time-limit must be a number of seconds from 0.001 to 604800, got '0'"),
        (["--time-limit", "nan"], "--time-limit must be a number of seconds from 0.001 to 604800, got 'nan'"),
        (["--time-limit", "soon"], "--time-limit must be a number of seconds from 0.001 to 604800, got 'soon'"),
        (["--backends", "eager,fused9"], "unknown backend 'fused9'; known: eager, "),
        (["--backends", "eager,eager"], "--backends names 'eager' twice"),
        (["--backends", "eager,,compile"], "--backends 'eager,,compile' has an empty name"),
        (["--backends", ""], "--backends '' has an empty name"),
        (["--backends", "./nowhere.py:Mine"], "backend file 'nowhere.py' does not exist"),
        (["--json", ""], "--json needs a path, got ''"),
        (["--json", "no/such/folder/r.json"], "does not exist"),
        (["--json", "."], "is a directory"),
        (["--json", os.devnull], "is not a regular file"),
        (["--out", __file__], "is a file, not a directory"),
        (["--batch"], "--batch"),
        (["--bathc", "3"], "--batch"),
        (["stray"], "stray"),
    ],
)
def test_profile_refuses_before_any_work(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, args: list[str], message: str
) -> None:
    assert message in refused(capsys, "profile", *args)
    assert api.asked is None


@pytest.mark.parametrize("args", [["--activation", "tanh"], ["--hidden-size", "0"], ["--device", "gpu"], ["eager"]])
def test_backends_refuses_too(capsys: pytest.CaptureFixture[str], api: SimpleNamespace, args: list[str]) -> None:
    refused(capsys, "backends", *args)
    assert api.asked is None


def test_a_gpu_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "valid here: cpu" in refused(capsys, "profile", "--device", "cuda")


# ---- what is done ----------------------------------------------------------------------------------------------------


def test_options_reach_the_profile(capsys: pytest.CaptureFixture[str], api: SimpleNamespace, tmp_path: Path) -> None:
    args = [
        "--batch",
        "3",
        "--seq",
        "5",
        "--hidden-size",
        "32",
        "--intermediate-size",
        "96",
        "--activation",
        "swish",
        "--dtype",
        "fp32",
    ]
    more = [
        "--bias",
        "--mode",
        "training",
        "--backends",
        "eager, compile",
        "--device",
        "cpu",
        "--rounds",
        "7",
        "--processes",
        "3",
        "--time-limit",
        "2.5",
        "--counters",
    ]
    files = ["--json", str(tmp_path / "r.json"), "--out", str(tmp_path / "out")]
    code, out, err = run(capsys, "profile", *args, *more, *files)
    assert code == 0
    spec = MLPSpec(hidden_size=32, intermediate_size=96, activation="silu", dtype="float32", bias=True)
    asked = {name: value for name, value in api.asked.items() if name not in ("on_event", "command")}
    assert asked == {
        "workload": Workload(spec=spec, batch=3, seq=5, mode="training"),
        "backends": ["eager", "compile"],
        "device": "cpu",
        "out": tmp_path / "out",
        "json": tmp_path / "r.json",
        "overwrite": False,
        "rounds": 7,
        "processes": 3,
        "time_limit_s": 2.5,
        "counters": True,
    }
    assert "CPU run" in out
    assert "qualify eager: ok in 0.1 s\n" in err


def test_the_command_line_is_kept_without_paths(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "planted"
    home.mkdir()
    (home / "mine.py").write_text("class Mine: name = 'mine'")
    given = ["--batch", "3", "--bias", "--backends", f"eager,{home}/mine.py:Mine", "--json", f"{home}/r.json"]
    assert run(capsys, "profile", *given, "--format", "csv")[0] == 0
    assert api.asked["command"] == (
        "mlpfusion", "profile", "--batch", "3", "--bias", "--backends", "eager,mine.py:Mine", "--json", "r.json",
        "--format", "csv",
    )  # fmt: skip
    assert run(capsys, "profile", "--rounds", "60")[0] == 0
    assert api.asked["command"] == ("mlpfusion", "profile", "--rounds", "60")


def test_sizes_not_given_are_the_default_workloads(capsys: pytest.CaptureFixture[str], api: SimpleNamespace) -> None:
    assert run(capsys, "profile")[0] == 0
    assert api.asked["workload"] == SMALL
    assert api.asked["backends"] is None
    assert api.asked["rounds"] == 60
    assert run(capsys, "profile", "--intermediate-size", "96")[0] == 0
    spec = msgspec.structs.replace(SMALL.spec, intermediate_size=96)
    assert api.asked["workload"] == msgspec.structs.replace(SMALL, spec=spec)


@pytest.mark.parametrize(
    ("args", "asked"),
    [([], (60, 1)), (["--publish"], (60, 5)), (["--processes", "2"], (60, 2)), (["--rounds", "9"], (9, 1))],
)
def test_how_often_is_raced(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, args: list[str], asked: tuple[int, int]
) -> None:
    assert run(capsys, "profile", *args)[0] == 0
    assert (api.asked["rounds"], api.asked["processes"]) == asked


@pytest.mark.parametrize("option", ["--rounds", "--processes"])
def test_publish_settles_how_often(capsys: pytest.CaptureFixture[str], api: SimpleNamespace, option: str) -> None:
    wanted = f"--publish is --processes 5 --rounds 60; leave {option} out, or --publish"
    assert wanted in refused(capsys, "profile", "--publish", option, "3")
    assert api.asked is None


def like(path: Path) -> str:
    spec = MLPSpec(hidden_size=24, intermediate_size=40, activation="silu", dtype="float32", bias=True)
    work = Workload(spec=spec, batch=7, seq=11, mode="training")
    rows = tuple(msgspec.structs.replace(timed(name, 3.0), backend=name) for name in ("eager", "compile"))
    process = Process(started="2026-01-01T00:00:00+00:00")
    results.save(on_a_cpu(*rows, workload=work, processes=(process,)), path)
    return str(path)


def test_like_measures_what_a_result_did(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, tmp_path: Path
) -> None:
    path = like(tmp_path / "published.json")
    assert run(capsys, "profile", "--like", path)[0] == 0
    asked = results.load(path)
    assert api.asked["workload"] == asked.workload
    assert api.asked["backends"] == ["eager", "compile"]
    assert (api.asked["device"], api.asked["rounds"], api.asked["processes"]) == ("cpu", 60, 1)


@pytest.mark.parametrize(
    "args",
    [
        ["--batch", "3"],
        ["--seq", "3"],
        ["--hidden-size", "32"],
        ["--intermediate-size", "32"],
        ["--activation", "silu"],
        ["--dtype", "fp32"],
        ["--bias"],
        ["--mode", "training"],
        ["--backends", "eager"],
        ["--rounds", "3"],
        ["--processes", "3"],
        ["--publish"],
    ],
)
def test_like_settles_what_is_measured(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, tmp_path: Path, args: list[str]
) -> None:
    path = like(tmp_path / "published.json")
    wanted = f"--like measures what {path!r} did; leave {args[0]} out, or --like"
    assert wanted in refused(capsys, "profile", "--like", path, *args)
    assert api.asked is None


@pytest.mark.parametrize("option", ["--json", "--out"])
def test_like_keeps_its_file(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, tmp_path: Path, option: str
) -> None:
    path = like(tmp_path / results.RESULT_NAME)
    before = Path(path).read_bytes()
    place = {"--json": path, "--out": str(tmp_path)}[option]
    assert "--like reads" in refused(capsys, "profile", "--like", path, option, place, "--overwrite")
    assert Path(path).read_bytes() == before
    assert api.asked is None


@pytest.mark.parametrize("content", [None, "", "{", '{"schema": 9, "kind": "profile"}', '{"schema": 1, "kind": "x"}'])
def test_like_a_file_that_is_no_profile(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "r.json"
    if content is not None:
        path.write_text(content)
    assert "r.json" in refused(capsys, "profile", "--like", str(path))
    assert api.asked is None


def test_stdout_is_the_format_asked_for_and_nothing_else(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace
) -> None:
    _, out, _ = run(capsys, "profile", "--format", "json")
    assert json.loads(out)["kind"] == "profile"
    _, out, _ = run(capsys, "profile", "--format", "csv")
    assert out.startswith("device,")


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ((OK,), 0),
        ((OK, UNAVAILABLE), 0),
        ((EMULATED, UNAVAILABLE), 0),
        ((OK, FAILED), 1),
        ((UNAVAILABLE,), 1),
        ((), 1),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], api: SimpleNamespace, rows: tuple[Row, ...], code: int) -> None:
    api.rows = rows
    assert run(capsys, "profile")[0] == code


def test_an_interrupt_says_what_was_saved(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, tmp_path: Path
) -> None:
    api.raises = KeyboardInterrupt()
    path = tmp_path / "r.json"
    code, out, err = run(capsys, "profile", "--json", str(path))
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == f"mlpfusion: interrupted; 1 finished row saved in {path}"
    assert len(results.load(path).rows) == 1
    code, _, err = run(capsys, "profile", "--out", str(tmp_path / "out"))
    assert err.splitlines()[-1].endswith(f"saved in {tmp_path / 'out' / results.RESULT_NAME}")
    _, _, err = run(capsys, "profile")
    assert err.splitlines()[-1].endswith("nothing was saved: neither --json nor --out was given")
    api.rows = ()  # an older run's file is still there
    _, _, err = run(capsys, "profile", "--json", str(path))
    assert err.splitlines()[-1].endswith("nothing was saved: no backend had finished")


def test_an_interrupt_before_the_run_is_one_line_too(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(kind: str | None) -> Device:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlpfusion.device.detect", interrupted)
    code, out, err = run(capsys, "profile")
    assert (code, out) == (130, "")
    assert err.strip() == "mlpfusion: interrupted; nothing was saved"


def test_an_error_of_the_run_is_one_line_and_no_usage_error(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace
) -> None:
    from mlpfusion.errors import MeasurementError

    api.raises = MeasurementError("the clock\nran backwards")
    code, out, err = run(capsys, "profile")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "mlpfusion: the clock ran backwards"


def test_backends_says_what_a_profile_does_with_each(
    capsys: pytest.CaptureFixture[str], api: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {
        "eager": plan.Planned("eager", "available", None),
        "triton": plan.Planned("triton", "emulated", "few tokens"),
        "compile-max-autotune": plan.Planned("compile-max-autotune", "unavailable", "no\ncompiler"),
    }
    asked: list[tuple[MLPSpec, Device]] = []
    monkeypatch.setattr(backend, "names", lambda: list(plans))
    monkeypatch.setattr(plan, "planned", lambda name, spec, here: asked.append((spec, here)) or plans[name])
    code, out, err = run(capsys, "backends", "--activation", "gelu_new", "--bias", "--hidden-size", "8")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "eager                 available",
        "triton                emulated: few tokens",
        "compile-max-autotune  unavailable: no compiler",
        "`mlpfusion profile` races 1 of 3 in bfloat16 on a CPU, emulates 1 and leaves out 1",
    ]
    wanted = MLPSpec(hidden_size=8, intermediate_size=128, activation="gelu_tanh", bias=True)
    assert asked == [(wanted, CPU)] * 3


# ---- what is registered ----------------------------------------------------------------------------------------------


def test_every_registered_backend_may_be_asked_for(capsys: pytest.CaptureFixture[str], api: SimpleNamespace) -> None:
    assert run(capsys, "profile", "--backends", ",".join(backend.names()))[0] == 0
    assert api.asked["backends"] == backend.names()
