"""tracing: what is recorded of any callable, from Python and from a script, and which rows and traces are compared."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
from support import forked, profiles_made
from support.eager_and_compile import COMPILE, EAGER, EAGER_TO_COMPILE

import mlpfusion
from mlpfusion.errors import MeasurementError, UsageError
from mlpfusion.measure.script import load
from mlpfusion.records.clocks import Clocks, Samples
from mlpfusion.records.profile import Row
from mlpfusion.stages.trace import run
from mlpfusion.stats import summarise
from mlpfusion.storage import results
from mlpfusion.trace.analysis.kernels import analyse
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.read import kineto
from mlpfusion.workers import supervise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# ---- recording -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [1, 3, 20])
def test_a_trace_holds_exactly_the_calls_asked_for(tmp_path: Path, calls: int) -> None:
    made = []
    linear, x = torch.nn.Linear(4, 3), torch.randn(2, 4)

    def forward(given: torch.Tensor) -> torch.Tensor:
        made.append(given)
        return linear(given)

    out = tmp_path / "t.json.gz"
    assert mlpfusion.record(forward, x, calls=calls, out=out) == out
    assert len(made) == calls + 5
    assert made[0] is x
    found = read(out)
    assert (found.call.name, found.call.count, found.analysis.calls) == ("mlpfusion.call", calls, calls)
    assert [kernel.name for kernel in found.analysis.kernels] == ["aten::addmm"]
    assert found.incomplete is None


def test_sessions_in_one_process_do_not_leak_into_each_other(tmp_path: Path) -> None:
    for index, function in enumerate((torch.sin, torch.cos, torch.sin)):
        found = read(mlpfusion.record(function, torch.ones(4), calls=4, out=tmp_path / f"{index}.json.gz"))
        assert [kernel.name for kernel in found.analysis.kernels] == [f"aten::{function.__name__}"]
        assert found.analysis.calls == 4


def test_what_is_raised_is_raised_and_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "t.json.gz"
    for good in (0, 4):  # in the warm-up, and while the profiler is on
        left = [None] * good

        def fails(left: list[None] = left) -> None:
            if not left:
                raise ZeroDivisionError("a reason of its own")
            left.pop()

        with pytest.raises(ZeroDivisionError, match="a reason of its own"):
            mlpfusion.record(fails, out=out)
    assert list(tmp_path.iterdir()) == []
    assert read(mlpfusion.record(torch.sin, torch.ones(3), out=out)).call.count == 20


@pytest.mark.parametrize(
    ("fn", "options", "message"),
    [
        (3, {}, "fn must be callable, got 3"),
        (torch.sin, {"calls": 0}, "calls must be an integer from 1 to 100000, got 0"),
        (torch.sin, {"calls": True}, "calls must be an integer from 1 to 100000, got True"),
        (torch.sin, {"calls": 2.5}, "calls must be an integer from 1 to 100000, got 2.5"),
        (torch.sin, {"out": "no/such/t.json"}, "does not exist"),
        (torch.sin, {"out": "."}, "is a directory"),
    ],
)
def test_record_refuses(fn: Callable[..., object], options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        mlpfusion.record(fn, torch.ones(2), **options)  # type: ignore[arg-type]


def test_a_recorded_trace_tells_nothing_of_the_machine(tmp_path: Path) -> None:
    import gzip

    def step() -> torch.Tensor:
        with torch.profiler.record_function("a secret of mine"):
            return torch.sin(torch.ones(3))

    text = gzip.decompress(mlpfusion.record(step, out=tmp_path / "t.json.gz").read_bytes()).decode()
    assert "secret" not in text
    assert str(tmp_path) not in text


# ---- scripts ---------------------------------------------------------------------------------------------------------

SCRIPT = """
import os
import neighbour
import torch

x = torch.ones(3)
not_a_function = 3


def step():
    print("noise on stdout")
    return neighbour.sine(x)


def raises():
    raise ValueError("the first line\\nand a second")


def wants(a):
    return a


class Module:
    pass


async def waits():
    return torch.sin(x)


async def streams():
    yield torch.sin(x)


def yields():
    yield torch.sin(x)


def profiles():
    with torch.profiler.profile():
        torch.sin(x)


def killed():
    os.kill(os.getpid(), 9)


"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("script")
    (folder / "neighbour.py").write_text("import torch\n\n\ndef sine(x):\n    return torch.sin(x)\n")
    path = folder / "mine.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_is_recorded_in_a_process_of_its_own(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.json.gz"
    assert run.record_script(str(script), "step", calls=7, out=out) is None
    found = read(out)
    assert (found.call.count, [kernel.name for kernel in found.analysis.kernels]) == (7, ["aten::sin"])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("Module", r"mine.py:Module is a class; name a function"),
        ("waits", r"mine.py:waits is async: a call of it runs nothing"),
        ("streams", r"mine.py:streams is async: a call of it runs nothing"),
        ("yields", r"mine.py:yields is a generator: a call of it runs nothing"),
        ("not_a_function", r"mine.py:not_a_function is no function; valid: step"),
        ("wants", r"mine.py:wants needs arguments"),
    ],
)
def test_a_function_that_cannot_be_called_is_a_usage_error(
    script: Path, monkeypatch: pytest.MonkeyPatch, function: str, message: str
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    with pytest.raises(UsageError, match=message):
        load(script, function)


@pytest.fixture
def forks() -> Iterator[None]:
    """A script's process need not import PyTorch again to say what becomes of it."""
    with forked.processes_of(supervise):
        yield


@pytest.mark.usefixtures("forks")
def test_what_the_process_says_of_a_function_is_a_usage_error(script: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mine.py:nowhere does not exist; valid: step, raises, wants, waits, .*"):
        run.record_script(str(script), "nowhere", out=tmp_path / "t.json.gz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("raises", "ValueError: the first line"),
        ("killed", "the worker was killed by SIGKILL; the script uses its own profiler, and only one can run at"),
    ],
)
def test_a_call_that_fails_says_why(script: Path, tmp_path: Path, function: str, reason: str) -> None:
    said = run.record_script(str(script), function, out=tmp_path / "t.json.gz")
    assert said is not None
    assert said.startswith(reason)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("text", "limit", "reason"),
    [
        ("import os; os._exit(3)", 900, "the worker exited with code 3"),
        ("import os; os.kill(os.getpid(), 9)", 900, "the worker was killed by SIGKILL"),
        ("import time; time.sleep(6000)", 2, "no answer within 2 s"),
    ],
)
def test_a_script_that_does_not_come_to_its_function_says_why(
    tmp_path: Path, text: str, limit: float, reason: str
) -> None:
    script, out = tmp_path / "mine.py", tmp_path / "t.json.gz"
    script.write_text(text)
    assert run.record_script(str(script), "f", out=out, time_limit_s=limit) == reason
    assert not list(tmp_path.glob("t*"))


@pytest.mark.usefixtures("forks")
def test_a_script_that_profiles_itself_is_told_so(script: Path, tmp_path: Path) -> None:
    said = run.record_script(str(script), "profiles", out=tmp_path / "t.json.gz", time_limit_s=900)
    assert said is not None
    assert "its own profiler" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "reason",
    [
        "the worker was killed by SIGSEGV",
        "RuntimeError: Can't disable Kineto profiler when it's not running",
        "RuntimeError: Profiler is already enabled on this thread.",
    ],
)
def test_a_script_without_a_profiler_is_not_told_of_one(script: Path, tmp_path: Path, reason: str) -> None:
    """Kineto crashes (PyTorch 2.13) or raises (2.11 and 2.15) where two of them run."""
    assert "its own profiler" in run._hint(reason, script)
    plain = tmp_path / "plain.py"
    plain.write_text("def f():\n    pass\n", encoding="utf-8")
    assert run._hint(reason, plain) == ""


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"script 'nowhere.py' does not exist"):
        run.record_script("nowhere.py", "f", out=tmp_path / "t.json.gz")
    text = tmp_path / "notes.txt"
    text.write_text("x")
    with pytest.raises(UsageError, match="its name must end in"):
        run.record_script(str(text), "f", out=tmp_path / "t.json.gz")


# ---- comparing -------------------------------------------------------------------------------------------------------


@pytest.fixture
def result(tmp_path: Path) -> str:
    """A result file with the rows of two recorded traces, and one that has no kernels."""
    rows = []
    for name, path in (("eager", EAGER), ("compile", COMPILE)):
        found = analyse(kineto.read(path), device="cuda")
        clock = summarise(Samples(backend=name, clock="kernel_us", l2="cold", values=found.kernel_us))
        rows.append(
            Row(
                backend=name,
                status="ok",
                kernels=found.kernels,
                launches=found.launches,
                pre_ops=found.pre_ops,
                clocks=Clocks(kernel_us=clock),
            )
        )
    rows.append(Row(backend="liger", status="unavailable", reason="no GPU"))
    path = tmp_path / "result.json"
    results.save(profiles_made.profile(*rows), path)
    return str(path)


def test_traces_rows_and_readings_compare_alike(result: str) -> None:
    pairs = [
        (EAGER, COMPILE),
        (read(EAGER), read(COMPILE)),
        (f"{result}:eager", f"{result}:compile"),
        (EAGER, f"{result}:compile"),
        (results.load(result).rows[0], Path(COMPILE)),
    ]
    for a, b in pairs:
        found = mlpfusion.diff(a, b)
        changes = [(pair.change, pair.role) for pair in found.kernels if pair.role != "memset"]
        assert changes == EAGER_TO_COMPILE
    assert mlpfusion.diff(f"{result}:eager", COMPILE).a == f"{result}:eager"


def test_a_result_file_as_others_write_json(result: str) -> None:
    path = Path(result)
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes())))
    assert mlpfusion.diff(f"{result}:eager", f"{result}:eager").kernels


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ("{result}", r"is a result file; name one of its rows: .*:eager, .*:compile, .*:liger"),
        ("{result}:nope", r"has no row 'nope'; valid: .*:eager"),
        ("{result}:liger", r"row 'liger' of .* has no kernels: it is unavailable: no GPU"),
        (
            "{other}",
            r"other.json' is a file of mlpfusion of kind 'article'; valid: a trace, or a row of a 'profile'",
        ),
        ("{other}:eager", r"other.json' is a file of mlpfusion of kind 'article'"),
        ("nowhere.json", r"trace 'nowhere.json'"),
        ("nowhere.json:eager", r"trace 'nowhere.json"),
        ("", r"trace"),
        ("a\0b", r"trace"),
    ],
)
def test_a_side_that_is_not_there(result: str, side: str, message: str) -> None:
    other = Path(result).with_name("other.json")
    other.write_text('{"schema": 1, "kind": "article", "claims": []}')
    with pytest.raises((UsageError, MeasurementError), match=message):
        mlpfusion.diff(EAGER, side.replace("{result}", result).replace("{other}", str(other)))
