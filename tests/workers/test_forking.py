"""Workers forked from a process that has imported what they need: as good as those that import it themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.strange_workers import come, gone, sleepers, task_for

from mlpfusion.workers import forking, supervise, tasks


@pytest.fixture(scope="module")
def server():
    with forking.kept():
        yield


@pytest.fixture
def forked(server, tmp_path):
    def run(body: str, *, time_limit_s: float = 900) -> tasks.Answer:
        os.environ.pop("PYTEST_CURRENT_TEST", None)  # with which each test would get a server of its own
        return supervise.run(task_for(body, tmp_path), folder=tmp_path, name="task", time_limit_s=time_limit_s)

    return run


def serving() -> int:
    """The number of the server's process."""
    assert forking._KEPT.server is not None
    return forking._KEPT.server._process.pid


@pytest.mark.full
def test_an_answer_comes_back_and_a_thread_left_behind_does_not_keep_it(forked, tmp_path):
    answer = forked("supports")
    assert isinstance(answer, tasks.Qualified)
    assert answer.accuracy.ratio > 2
    assert answer.traced
    assert (tmp_path / "trace.json").is_file()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("dies", "the worker was killed by SIGSEGV: last words"),
        ("raises", "ValueError: first line"),
        ("quits", "the worker exited with code 7"),
        ("quits with a word", "the worker exited with code 1: needs a licence key"),
        ("asks", "ValueError: nobody answers"),
    ],
)
def test_whatever_happens_becomes_the_same_line_as_of_a_worker_started_by_itself(forked, monkeypatch, body, reason):
    answer = forked(body)
    assert answer == tasks.Broken(kind="failed", reason=reason)
    monkeypatch.setattr(forking, "start", lambda *_, **__: None)
    assert forked(body) == answer


def test_nothing_that_is_imported_before_the_fork_asks_cuda():
    script = """
import os, torch
def forbidden(name):
    def called(*_, **__):
        if name in {"is_available", "device_count"} and os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") == "1":
            return 1
        os.write(1, name.encode())
        os._exit(3)
    return called
for name in ("is_available", "device_count", "init", "_lazy_init", "current_device", "get_device_properties",
             "get_device_capability", "current_stream", "synchronize"):
    setattr(torch.cuda, name, forbidden(name))
from mlpfusion.stages.profile import forkserver
forkserver.preload()
assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_workers_come_from_one_server_and_leave_nothing_to_each_other(forked):
    assert forked("leaves something").reason == "ValueError: left"
    first = serving()
    assert forked("finds nothing").reason == "ValueError: False None"
    assert forked("dies").reason.startswith("the worker was killed by SIGSEGV")
    assert forked("raises").reason == "ValueError: first line"
    assert serving() == first


def test_a_forked_worker_that_hangs_ends_with_what_it_started_and_the_server_goes_on(forked, tmp_path):
    forked("raises")
    first = serving()
    assert forked("hangs", time_limit_s=3).reason == "no answer within 3 s"
    assert gone(str(tmp_path))
    assert forked("raises").reason == "ValueError: first line"
    assert serving() == first


@pytest.mark.full
def test_another_environment_or_folder_gets_another_server(forked, monkeypatch, tmp_path):
    forked("raises")
    first = serving()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("SHOWN", "this")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert forked("shows its environment").reason == "ValueError: this in elsewhere"
    assert serving() != first


@pytest.mark.full
def test_a_server_that_is_killed_takes_its_worker_with_it_and_later_ones_get_another(forked, tmp_path):
    forked("raises")
    first = serving()
    killer = threading.Thread(target=lambda: come(str(tmp_path), 1) and os.kill(first, signal.SIGKILL))
    killer.start()
    assert forked("hangs").reason == "the worker was killed by SIGKILL"
    killer.join()
    for orphan in sleepers(str(tmp_path)):  # what the worker had started is nobody's now
        os.kill(orphan, signal.SIGKILL)
    for _ in range(2):  # the first finds the server dead and starts by itself
        assert forked("raises").reason == "ValueError: first line"
    assert serving() != first


def test_a_worker_beside_a_forked_one_is_started_by_itself(forked, tmp_path):
    forked("raises")
    (tmp_path / "beside").mkdir()
    found = []
    beside = threading.Thread(
        target=lambda: found.append(
            supervise.run(task_for("raises", tmp_path / "beside"), folder=tmp_path, name="beside", time_limit_s=900)
        )
    )
    slow = threading.Thread(target=lambda: found.append(forked("is slow")))
    slow.start()
    while not forking._KEPT.server.busy:
        time.sleep(0.01)
    beside.start()
    slow.join()
    beside.join()
    assert sorted(each.reason for each in found) == ["ValueError: first line", "ValueError: slow"]


def test_a_server_that_cannot_start_is_said_once_and_workers_come_all_the_same(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(forking, "_KEPT", forking._Kept())
    real = subprocess.Popen

    def broken(command, **options):
        if "mlpfusion.stages.profile.forkserver" in command:
            command = [sys.executable, "-c", "raise SystemExit('no such disk')"]
        return real(command, **options)

    monkeypatch.setattr(subprocess, "Popen", broken)
    with forking.kept():
        answer = supervise.run(task_for("raises", tmp_path), folder=tmp_path, name="task", time_limit_s=900)
        assert answer.reason == "ValueError: first line"
        again = supervise.run(task_for("raises", tmp_path), folder=tmp_path, name="task", time_limit_s=900)
        assert again == answer
    assert caplog.messages == ["each worker imports PyTorch again: the process to fork them from ended: no such disk"]


def marked(number: int, folder: Path) -> bool:
    with contextlib.suppress(OSError):  # it has gone meanwhile
        return f"MARKED={folder}" in Path(f"/proc/{number}/environ").read_text()
    return False


def test_a_server_and_its_worker_end_with_their_parent(tmp_path):
    task = task_for("hangs", tmp_path)
    (tmp_path / "task.json").write_bytes(tasks.encode(task))
    script = (
        "from pathlib import Path; from mlpfusion.workers import forking, supervise, tasks;"
        f"folder = Path({str(tmp_path)!r}); task = tasks.decode_task((folder / 'task.json').read_bytes())\n"
        "with forking.kept():\n"
        "    print(forking.ForkServer, flush=True)\n"
        "    supervise.run(task, folder=folder, name='t', time_limit_s=900)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "MARKED": str(tmp_path)})
    assert come(str(tmp_path), 2)  # the parent, and what the worker has started by now
    children = [number for number in sleepers("mlpfusion.stages.profile.forkserver") if marked(number, tmp_path)]
    assert len(children) == 2  # the server and the worker
    parent.kill()
    parent.wait()
    while any(Path(f"/proc/{number}").exists() for number in children):
        time.sleep(0.1)
    for orphan in sleepers(str(tmp_path)):
        os.kill(orphan, signal.SIGKILL)


def run_alone(script: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, **options)


ONE_AFTER_THE_OTHER = """
import sys, threading, time
from pathlib import Path
from mlpfusion.workers import forking, supervise, tasks
folder = Path(sys.argv[1])
task = tasks.decode_task((folder / "task.json").read_bytes())
def ask(name):
    answer = supervise.run(task, folder=folder, name=name, time_limit_s=900)
    print(answer.reason, flush=True)
"""


@pytest.fixture
def given(tmp_path):
    def given(body: str) -> str:
        (tmp_path / "task.json").write_bytes(tasks.encode(task_for(body, tmp_path)))
        return ONE_AFTER_THE_OTHER.replace("sys.argv[1]", repr(str(tmp_path)))

    return given


@pytest.mark.full
def test_the_server_outlives_the_thread_that_started_it(given):
    """The kernel's word for a parent is the thread that started a process."""
    done = run_alone(
        given("is slow")
        + """
with forking.kept():
    first = threading.Thread(target=ask, args=("first",))
    first.start()
    first.join()
    server = forking._KEPT.server
    time.sleep(0.5)
    ask("second")
    assert forking._KEPT.server is server
"""
    )
    assert (done.stdout, done.returncode) == ("ValueError: slow\n" * 2, 0), done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    "before",
    [
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "import os, resource as r; r.setrlimit(r.RLIMIT_NOFILE, (4096, r.getrlimit(r.RLIMIT_NOFILE)[1]));"
        "held = [os.open('/dev/null', 0) for _ in range(1100)]",
        "import warnings; warnings.simplefilter('error')",
    ],
)
def test_whatever_the_caller_has_set_workers_are_forked(given, before):
    done = run_alone(
        f"{before}\n{given('raises')}"
        + """
with forking.kept():
    ask("one")
    assert forking._KEPT.server is not None
""",
        env={**os.environ, "PYTHONWARNINGS": "error" if "warnings" in before else ""},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ValueError: first line\n", "", 0)
