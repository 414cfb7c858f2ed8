"""limits: every number on every command line and of every function has a range, and what is beyond it one line."""

from __future__ import annotations

import inspect
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
import typer

import mlpfusion
from mlpfusion import limits
from mlpfusion.cli import main
from mlpfusion.cli.text import quoting_briefly
from mlpfusion.errors import UsageError
from mlpfusion.models import load
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.choose import foresee
from mlpfusion.stages.choose import run as choose_run
from mlpfusion.stages.prove import run as prove_run
from mlpfusion.stages.trace import run
from mlpfusion.stages.validate import run as validate_run
from mlpfusion.trace import perfetto
from mlpfusion.trace.analysis import summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMANDS = typer.main.get_command(main.app).commands  # type: ignore[attr-defined]
# What says of an option that its value is a number, or several; every other metavar is of a text.
SHARE = "SHARE"  # as 1% or 0.01; its refusals are in tests/cli/test_compare.py
NUMBERS = ("N", "S", "N,N", "7x127,64")
TEXTS = (
    "A,B", "A,B|none", "BACKEND", "CARD", "COLUMN", "DIR", "FILE", "FILE.html", "FILE|-", "NAME", "PATTERN", "RESULT",
    "STUDY", "TEXT", "cuda",
)  # fmt: skip
SHARD = "I/N"  # which part of a study, and of how many
# What else a command needs before it looks at its options.
NEEDED = {
    "choose": ["article"],
    "diff": ["a.json", "b.json"],
    "explain": ["ampere_sgemm"],
    "open": ["a.json"],
    "predict": ["a.json"],
    "prove": ["no-model", "--backend", "eager"],
    "read": ["a.json"],
    "table": ["a.json"],
    "trace": ["a.py:f"],
    "validate": ["a.py:f"],
}
NO_INTEGERS = ["-1", "1.5", "nan", "inf", "-inf", "1e400", "1e3", "1_000", "٣", "²", "0x1g", "+1", " 1", "", "x", "on"]
TOO_LARGE = [str(10**30), "9" * 5000]
NO_SECONDS = ["-1", "0", "-0.0", "0.0", "1e-320", "nan", "inf", "-inf", "1e400", "1e7", "1_000", "٣", "", " 1", "soon"]
NO_SECONDS += ["9" * 5000, "0x10", "1e", "infinity", "NaN"]


def options(*metavars: str) -> Iterator[tuple[str, str]]:
    for name, command in COMMANDS.items():
        for param in command.params:
            if param.param_type_name == "option" and param.metavar in metavars:
                yield name, param.opts[0]


def test_every_option_is_a_flag_a_number_or_a_text() -> None:
    """A new option has to say by its metavar what it takes, so that a number cannot hide from the tests below."""
    odd = [
        (name, param.opts[0], param.metavar)
        for name, command in COMMANDS.items()
        for param in command.params
        if param.param_type_name == "option" and not param.is_flag
        if param.metavar not in (*NUMBERS, *TEXTS, SHARE, SHARD) and "|" not in (param.metavar or "")
    ]
    assert odd == []
    assert len(list(options(*NUMBERS))) > 25
    assert not [opt for _, opt in options(*TEXTS) if opt in ("--tokens", "--shapes")]


def refused(capsys: pytest.CaptureFixture[str], command: str, option: str, value: str) -> None:
    code = main.main([command, *NEEDED.get(command, []), option, value])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    line = err.removeprefix("mlpfusion: ")
    assert option in line
    assert quoting_briefly(repr(value)) in line
    assert "from" in line, "the valid range"


@pytest.mark.parametrize(("command", "option"), list(options("N", "N,N", "7x127,64")))
def test_what_is_no_integer_or_too_large_a_one_is_refused(
    capsys: pytest.CaptureFixture[str], command: str, option: str
) -> None:
    empty = ("", " 1") if option in ("--tokens", "--shapes") else ()  # a list of names has its own line for these
    for value in (*NO_INTEGERS, *TOO_LARGE):
        if value not in empty:
            refused(capsys, command, option, value)


@pytest.mark.parametrize(("command", "option"), list(options("S")))
def test_what_is_no_time_is_refused(capsys: pytest.CaptureFixture[str], command: str, option: str) -> None:
    for value in NO_SECONDS:
        refused(capsys, command, option, value)


def test_both_ends_of_a_range_belong_to_it() -> None:
    ranges = [value for value in vars(limits).values() if isinstance(value, limits.Whole)]
    assert len(ranges) > 8
    for one in ranges:
        for value in one:
            assert limits.whole("n", value, one) == limits.whole_in("n", f"00{value}", one) == value
        for value in (one.least - 1, one.most + 1):
            with pytest.raises(UsageError, match=f"n must be an integer from {one.least} to {one.most}, got {value}"):
                limits.whole("n", value, one)
    for value in limits.SECONDS:
        assert limits.seconds("s", value) == limits.seconds_in("s", repr(value)) == value
    assert limits.seconds_in("s", "1e2") == limits.seconds_in("s", "100.") == 100


# ---- the functions ---------------------------------------------------------------------------------------------------

SPEC = MLPSpec(hidden_size=8, intermediate_size=8)
WORK = Workload(spec=SPEC, batch=1, seq=1)
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "MLPSpec": (MLPSpec, {"hidden_size": 8, "intermediate_size": 8}),
    "Workload": (Workload, {"spec": SPEC, "batch": 1, "seq": 1}),
    "profile": (mlpfusion.profile, {"workload": WORK, "backends": ["eager"], "device": "cpu"}),
    "choose": (choose_run.choose, {"model": SPEC, "backends": ["eager"], "device": "cpu"}),
    "foresee": (foresee.foresee, {"model": SPEC, "card": "NVIDIA H200"}),
    "validate": (validate_run.validate, {"targets": ["eager"], "device": "cpu"}),
    "self_test": (validate_run.self_test, {"device": "cpu"}),
    "record": (run.record, {"fn": lambda: None}),
    "record_script": (run.record_script, {"script": "no.py", "function": "f", "out": "no.json"}),
    "read": (mlpfusion.read, {"source": b"{}"}),
    "read_job": (mlpfusion.read_job, {}),
    "read_all": (summary.read_all, {"source": b"{}"}),
    "diff": (mlpfusion.diff, {"a": "no.json", "b": "no.json"}),
    "compare": (mlpfusion.compare, {"baseline": "no.json", "candidate": "no.json"}),
    "serve": (perfetto.serve, {"path": "no.json", "timeout_s": 1.0, "ready": print}),
    "load_model": (load.load_model, {"path": None, "device": "cpu", "dtype": None, "layers": 1, "seed": 0}),
    "prove": (prove_run.prove, {"handle": SimpleNamespace(how="swap", swapped=(), parts={}), "inputs": {}}),
    "random_inputs": (load.random_inputs, {"model": None, "batch": 1, "seq": 1, "device": "cpu", "seed": 0}),
}
BAD: list[object] = [-1, 10**30, 10**5000, -(10**5000), math.nan, math.inf, -math.inf, 1e400, True, "1", b"1", [1]]
BAD_INTEGERS: list[object] = [*BAD, 1.5, 2.0]
BAD_SECONDS: list[object] = [*BAD, 0, 0.0, 1e7, -0.5]


def numbers() -> Iterator[tuple[str, str, list[object]]]:
    for name, (function, _) in CALLS.items():
        for parameter in inspect.signature(function).parameters.values():
            if parameter.annotation in ("int", "int | None", "Sequence[int]", int):
                yield name, parameter.name, BAD_INTEGERS
            elif parameter.annotation in ("float", float):
                yield name, parameter.name, BAD_SECONDS


@pytest.mark.parametrize(("function", "name", "values"), list(numbers()))
def test_a_function_refuses_a_number_beyond_its_range(function: str, name: str, values: list[object]) -> None:
    called, given = CALLS[function]
    for value in values:
        with pytest.raises(UsageError) as raised:
            called(**{**given, name: [value] if name == "tokens" else value})
        text = str(raised.value)
        assert text.startswith(f"{name} must be a")
        assert "from " in text
        assert limits.shown(value) in text
        assert "\n" not in text


def test_every_public_function_with_numbers_is_called_above() -> None:
    called = [function for function, _ in CALLS.values()]
    public = [getattr(mlpfusion, name) for name in mlpfusion.__all__ if inspect.isfunction(getattr(mlpfusion, name))]
    for function in public:
        annotations = [parameter.annotation for parameter in inspect.signature(function).parameters.values()]
        assert function in called or not {"int", "float", "int | None"} & set(annotations), function


@pytest.mark.parametrize("sizes", [{"batch": 2**31 - 1, "seq": 2}, {"batch": 2**16, "seq": 2**16}])
def test_the_tokens_of_a_batch_have_a_range_too(capsys: pytest.CaptureFixture[str], sizes: dict[str, int]) -> None:
    count = sizes["batch"] * sizes["seq"]
    with pytest.raises(UsageError, match=f"batch x seq must be an integer from 1 to {2**31 - 1}, got {count}"):
        Workload(spec=SPEC, **sizes)
    args = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    assert main.main(["profile", "--device", "cpu", *args]) == 2
    assert f"got {count}" in capsys.readouterr().err


def test_a_shape_that_does_not_fit_into_memory_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlpfusion.device._available_bytes", lambda: 10**6)
    with pytest.raises(UsageError, match=r"shape 1000x1000 needs about 0.0 GB; .* has 0.0 GB free"):
        validate_run.validate(["eager"], shapes=[(1000, 1000)], device="cpu")


def test_logits_that_do_not_fit_into_memory_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Config:
        vocab_size = 10**6
        is_encoder_decoder = False

        def get_text_config(self) -> Config:
            return self

    class Model:
        config = Config()

    monkeypatch.setattr("mlpfusion.device._available_bytes", lambda: 10**9)
    monkeypatch.setattr(torch, "randint", lambda *args, **options: pytest.fail("it was made"))
    with pytest.raises(UsageError, match=r"batch 64 x seq 128 with a vocabulary of 1000000 needs more than 98.3 GB"):
        load.random_inputs(Model(), batch=64, seq=128, device="cpu", seed=0)
