"""Workers forked from a process that has imported what they need: as good as those that import it themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from support import forked as forked_processes
from support import kept_server
from support.kept_server import serving
from support.strange_workers import come, gone, sleepers, task_for

from mlpfusion.workers import forking, tasks

server, forked = kept_server.server, kept_server.forked  # fixtures

ENDS = pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("dies", "the worker was killed by SIGSEGV: last words"),
        ("raises", "ValueError: first line"),
        ("quits", "the worker exited with code 7"),
        ("quits with a word", "the worker exited with code 1: needs a licence key"),
        ("asks", "ValueError: nobody answers"),
    ],
)


@ENDS
def test_however_a_worker_ends_it_becomes_one_line(forked, body, reason):
    assert forked(body) == tasks.Broken(kind="failed", reason=reason)


@ENDS
@pytest.mark.full
def test_the_line_is_that_of_a_worker_started_by_itself(forked, monkeypatch, body, reason):
    monkeypatch.setattr(forking, "start", lambda *_, **__: None)
    assert forked(body) == tasks.Broken(kind="failed", reason=reason)


@pytest.mark.parametrize(
    "run",
    [
        forked_processes.run,  # of a process that has imported torch, not its compiler
        pytest.param(partial(subprocess.run, capture_output=True, text=True, check=False), marks=pytest.mark.full),
    ],
    ids=["forked", "by itself"],
)
def test_nothing_that_is_imported_before_the_fork_asks_cuda(run):
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
    done = run([sys.executable, "-c", script])
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


def marked(number: int, folder: Path) -> bool:
    with contextlib.suppress(OSError):  # it has gone meanwhile
        return f"MARKED={folder}" in Path(f"/proc/{number}/environ").read_text()
    return False


@pytest.mark.full  # as a worker that no server has forked
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


@pytest.mark.full
def test_an_answer_comes_back_and_a_thread_left_behind_does_not_keep_it(forked, tmp_path):
    answer = forked("supports")
    assert isinstance(answer, tasks.Qualified)
    assert answer.accuracy.ratio > 2
    assert answer.traced
    assert (tmp_path / "trace.json").is_file()
