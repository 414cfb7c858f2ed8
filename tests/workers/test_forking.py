"""The parent's side of a fork server: which worker is forked, from which server, and what happens without one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from support import kept_server
from support.kept_server import serving
from support.logged import warnings_of
from support.strange_workers import come, sleepers, task_for

from mlpfusion.workers import forking, supervise, tasks

server, forked = kept_server.server, kept_server.forked  # fixtures


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


class Busy:
    """A server with a worker that has not ended."""

    busy = True


def test_while_a_worker_runs_the_next_is_not_forked(monkeypatch, tmp_path):
    kept = forking._Kept()
    kept.depth, kept.server = 1, Busy()
    monkeypatch.setattr(forking, "_KEPT", kept)
    paths = [tmp_path / name for name in ("task", "answer", "log")]
    assert forking.start(*paths, environment=os.environ, device="cpu") is None
    assert isinstance(kept.server, Busy)


@pytest.mark.full
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


def test_a_server_that_cannot_start_is_said_once_and_workers_come_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setattr(forking, "_KEPT", forking._Kept())
    monkeypatch.setattr(forking, "subprocess", subprocess)  # not that of the module's server, which forks
    real = subprocess.Popen
    answer = tasks.Broken(kind="failed", reason="ValueError: first line")

    def broken(command, **options):
        script = "raise SystemExit('no such disk')"
        if "mlpfusion.stages.profile.worker" in command:  # which imports PyTorch to say the same
            script = f"import sys; open(sys.argv[-1], 'wb').write({tasks.encode(answer)!r})"
        return real([sys.executable, "-c", script, *command[-2:]], **options)

    monkeypatch.setattr(subprocess, "Popen", broken)
    with warnings_of(forking._LOG) as said, forking.kept():
        for _ in range(2):
            task = task_for("raises", tmp_path)
            assert supervise.run(task, folder=tmp_path, name="task", time_limit_s=900) == answer
    assert said == ["each worker imports PyTorch again: the process to fork them from ended: no such disk"]


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
