"""Signals end a run and its workers in every world that a program can be started in: terminal, nohup, blocked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from support import forked, rings, signal_world
from support.paths import TESTS
from support.strange_workers import come, gone, hanging, sleepers, task_for

from mlpfusion.storage import results
from mlpfusion.workers import interrupts, tasks

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.workers.forking import Process

linux = pytest.mark.skipif(sys.platform != "linux", reason="what a process ignores is read in /proc")
worlds = pytest.mark.parametrize("world", ["default", "ignored", "blocked"])


def start(world: str, names: str, script: str, *arguments: object, **options) -> subprocess.Popen[str]:
    """Python runs the script in such a world."""
    command = signal_world.command(world, names, sys.executable, "-c", script, *map(str, arguments))
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def slow(*row: str) -> object:
    """A row whose worker imports PyTorch, ten seconds of a core; the first ring has plain ones."""
    return pytest.param(*row, marks=rings.FULL)


# ---- a run, interrupted ----------------------------------------------------------------------------------------------

# The first backend is done at once; the second one's worker never answers.
PROFILE = """
import os, sys, tempfile
from pathlib import Path
folder = Path(sys.argv[1])
tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "scratch")
from mlpfusion.workers import forking, supervise, tasks
forking.start = lambda *_, **__: None  # a worker of its own is there sooner
done, in_a_process = tasks.Broken(kind="failed", reason="done"), supervise.run
supervise.run = lambda task, **how: done if task.backend == "eager" else in_a_process(task, **how)
from mlpfusion.__main__ import main
sys.argv = ["mlpfusion", "profile", "--device", "cpu", "--batch", "1", "--seq", "4", "--hidden-size", "16",
            "--intermediate-size", "32", "--dtype", "float32",
            "--backends", f"eager,{folder / 'hangs.py'}:Hangs", "--json", str(folder / "r.json")]
sys.exit(main())
"""

# A fork has the signals of whoever started the tests.
DEFAULT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, set())
"""


@pytest.fixture
def profiling(tmp_path):
    """A run whose worker hangs by now."""
    children = []

    def begin(world: str, names: str) -> Process:
        (tmp_path / "scratch").mkdir()
        marked = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(6000)', __file__])"
        (tmp_path / "hangs.py").write_text(f"import subprocess, sys, time\n{marked}\ntime.sleep(6000)")
        with (tmp_path / "printed").open("w") as printed:
            if world == "default":  # of a process that has imported PyTorch
                command = [sys.executable, "-c", DEFAULT + PROFILE, str(tmp_path)]
                run = forked.Popen(command, stdout=printed, stderr=printed)
            else:
                command = signal_world.command(world, names, sys.executable, "-c", PROFILE, str(tmp_path))
                run = subprocess.Popen(command, stdout=printed, stderr=printed)
        children.append(run)
        assert come(f"{tmp_path}/hangs.py", 1)  # what the worker has started
        return run

    yield begin
    for run in children:
        run.kill()
        run.wait()
    for orphan in sleepers(str(tmp_path)):
        os.kill(orphan, signal.SIGKILL)


def ended_by(number: int, run: Process, folder: Path) -> tuple[int, str]:
    """The exit code, and what was printed at last."""
    os.kill(run.pid, number)
    return run.wait(), (folder / "printed").read_text().splitlines()[-1]


def check_what_is_left(folder: Path) -> None:
    assert gone(str(folder))
    saved = results.load(folder / "r.json")
    assert [one.backend for one in saved.rows] == ["eager"]
    assert not saved.complete
    assert [path.name for path in (folder / "scratch").iterdir() if path.name.startswith("mlpfusion-")] == []


@pytest.mark.parametrize("number", rings.only_first([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
def test_an_interrupt_leaves_the_finished_rows_and_nothing_else(tmp_path, profiling, number):
    code, said = ended_by(number, profiling("default", "SIGINT"), tmp_path)
    assert code == 130
    assert said.startswith("mlpfusion: interrupted; 1 finished row saved in ")
    check_what_is_left(tmp_path)


@linux
@pytest.mark.parametrize("world", [slow("ignored"), slow("blocked")])
def test_what_a_run_was_told_to_ignore_does_not_end_it(tmp_path, profiling, world):
    """As under nohup, or in the background of a script: a Ctrl-C and a closed terminal are for others."""
    run = profiling(world, "SIGINT,SIGHUP")
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(run.pid, number)
        assert signal_world.has(run.pid, world, number)
    code, said = ended_by(signal.SIGTERM, run, tmp_path)
    assert (code, said.partition(";")[0]) == (130, "mlpfusion: interrupted")
    check_what_is_left(tmp_path)


@linux
@pytest.mark.parametrize("world", ["ignored", "blocked"])
def test_the_command_keeps_what_is_ignored_to_its_end(world):
    code = (
        "import sys; from mlpfusion.__main__ import main; sys.argv = ['mlpfusion', '--version']; main();"
        f"sys.path.append({str(TESTS)!r}); from support.signal_world import has;"
        f"import os; print(has(os.getpid(), {world!r}, 2))"
    )
    out, err = start(world, "SIGINT", code).communicate()
    assert (out.splitlines()[1:], err) == (["True"], "")


# ---- handlers --------------------------------------------------------------------------------------------------------


@pytest.fixture
def handlers():
    """The handlers of pytest's process, put back afterwards."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield lambda: [signal.getsignal(number) for number in numbers]
    for number, handler in before.items():
        signal.signal(number, handler)


def test_handlers_are_there_for_the_run_alone(handlers):
    before = handlers()
    with interrupts.stoppable():
        first, second = handlers()
        assert first is second
        with pytest.raises(KeyboardInterrupt):
            first(signal.SIGTERM, None)
        with interrupts.stoppable():
            assert handlers() == [first, second]
        assert handlers() == [first, second]
    assert handlers() == before


@pytest.mark.parametrize("theirs", [signal.SIG_IGN, lambda number, frame: None])
def test_what_a_program_does_with_its_signals_is_its_own(handlers, theirs):
    signal.signal(signal.SIGHUP, theirs)
    with interrupts.stoppable():
        assert callable(handlers()[0])
        assert handlers()[1] is theirs
    assert handlers() == [signal.SIG_DFL, theirs]


def test_a_thread_has_no_handlers_to_set(handlers):
    seen = []

    def run() -> None:
        with interrupts.stoppable():
            seen.append(handlers())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [[signal.SIG_DFL, signal.SIG_DFL]]


# ---- workers ---------------------------------------------------------------------------------------------------------

BEGIN = """
import sys, time
from pathlib import Path
from mlpfusion.workers import forking, supervise, tasks
supervise.GRACE_S = float(sys.argv[2])
folder = Path(sys.argv[1])
ended = []
def end(worker, real=supervise.end):
    while not (folder / "hangs").exists():  # a time limit may be over before the worker has begun
        time.sleep(0.05)
    real(worker)
    ended.append(worker.wait())
supervise.end = end
"""
RUN = """
task = tasks.decode_task((folder / "task.json").read_bytes())
with forking.kept():
    try:
        print(supervise.run(task, folder=folder, name="t", time_limit_s=float(sys.argv[3])).reason)
    finally:
        print(ended, flush=True)
"""
JUDGE = """
from mlpfusion.stages.validate.judge import worker_handle as hired
hired.START_S = 0
with hired.Hired(folder, "cpu", "worker") as worker:
    try:
        worker.load(f"{folder / 'mine.py'}:act", "gelu_tanh", time_limit_s=float(sys.argv[3]))
    except hired.DiedError as error:
        print(error)
print(ended)
"""
FOREVER = 5e5  # a worker that does not end by itself would hang the test


def hang(kind: str, folder: Path, first: str = "") -> str:
    """The script that runs a worker of this kind on what hangs; `first` is done by what hangs, before it does."""
    first = f"import signal; {first or 'pass'}; open({str(folder / 'hangs')!r}, 'w').close()"
    if kind == "validate":
        (folder / "mine.py").write_text(f"import time\n{first}\ntime.sleep(6000)\n")
        return BEGIN + JUDGE
    task = hanging(folder, first) if kind == "plain" else task_for("hangs", folder, first)
    (folder / "task.json").write_bytes(tasks.encode(task))
    return BEGIN + RUN


def said_by(run: subprocess.Popen[str]) -> list[str]:
    out, err = run.communicate()
    assert run.returncode == 0, err
    return out.splitlines()


@pytest.mark.parametrize(
    ("kind", "world"),
    [
        ("plain", "default"),
        ("plain", "ignored"),
        ("plain", "blocked"),
        slow("forked", "both"),
        slow("validate", "both"),
    ],
)
def test_a_worker_ends_on_sigterm_whatever_it_inherited(tmp_path, kind, world):
    """Nothing but SIGTERM would end it: the grace is as good as endless."""
    run = start(world, "SIGINT,SIGTERM,SIGHUP", hang(kind, tmp_path), tmp_path, FOREVER, 1)
    reason, codes = said_by(run)
    assert reason.startswith("no answer within 1 s")
    assert codes == str([-signal.SIGTERM])
    assert gone(str(tmp_path))


HARDENED = {
    "ignored": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})",
}


@pytest.mark.parametrize(
    ("kind", "how"),
    [("plain", "ignored"), ("plain", "blocked"), slow("forked", "ignored"), slow("validate", "blocked")],
)
def test_a_worker_that_will_not_hear_is_killed(tmp_path, kind, how):
    run = start("default", "SIGINT", hang(kind, tmp_path, HARDENED[how]), tmp_path, 0.2, 1)
    reason, codes = said_by(run)
    assert reason.startswith("no answer within 1 s")
    assert codes == str([-signal.SIGKILL])
    assert gone(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "world"), [("plain", "default"), ("plain", "ignored"), ("plain", "blocked"), slow("forked", "default")]
)
def test_an_interrupt_ends_the_worker(tmp_path, kind, world):
    """In the worlds where the parent does not hear Ctrl-C, by the signal that it hears."""
    script = hang(kind, tmp_path).replace(
        "with forking", "from mlpfusion.workers import interrupts\nwith interrupts.stoppable(), forking"
    )
    run = start(world, "SIGINT", script, tmp_path, FOREVER, FOREVER)
    assert come(str(tmp_path), 3 if kind == "plain" else 2)  # the run, the worker, and what that has started
    run.send_signal(signal.SIGINT)
    if world != "default":
        run.send_signal(signal.SIGTERM)
    out, err = run.communicate()
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert out.split("\n")[-2] == str([-signal.SIGTERM])
    assert gone(str(tmp_path))


@worlds
def test_a_worker_whose_parent_has_ended_already_does_nothing(tmp_path, world):
    """Its parent may be killed while it still starts, which takes seconds on a busy machine."""
    task = tmp_path / "task.json"
    task.write_bytes(tasks.encode(hanging(tmp_path)))
    command = [sys.executable, "-m", "mlpfusion.stages.profile.worker", str(task), str(tmp_path / "answer.json")]
    another = {**os.environ, "MLPFUSION_WORKER_OF": "1" if os.getpid() != 1 else "2"}
    done = subprocess.run(signal_world.command(world, "SIGINT", *command), env=another, check=False)
    assert done.returncode == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hangs.py", "task.json"]
