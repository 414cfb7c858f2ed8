"""Workers that answer, crash, hang, or are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from support import rings
from support.strange_workers import TINY, come, gone, hanging, sleepers, task_for

from mlpfusion.workers import supervise, tasks


@pytest.fixture
def qualify(tmp_path):
    def run(body: str) -> tasks.Answer:
        return supervise.run(task_for(body, tmp_path), folder=tmp_path, name="task", time_limit_s=900)

    return run


@pytest.mark.full  # it records a trace; that of an interrupted profile comes back in the first ring
def test_an_answer_comes_back_and_a_thread_left_behind_does_not_keep_it(qualify, tmp_path):
    answer = qualify("supports")
    assert isinstance(answer, tasks.Qualified)
    assert answer.accuracy.ratio > 2
    assert answer.traced
    assert (tmp_path / "trace.json").is_file()


@pytest.mark.parametrize(
    ("body", "reason"),
    rings.only_first([("dies", "the worker was killed by SIGSEGV: last words"), ("raises", "ValueError: first line")]),
)
def test_whatever_happens_becomes_one_line(qualify, body, reason):
    assert qualify(body) == tasks.Broken(kind="failed", reason=reason)


@pytest.mark.parametrize(
    ("code", "printed", "line"),
    [
        (7, "giving up\n", "the worker exited with code 7: giving up"),
        (-45, "first\nodd\n\n", "the worker was killed by signal 45: odd"),
        (-9, "", "the worker was killed by SIGKILL"),
        (1, "cannot open /home/somebody/file.bin", "the worker exited with code 1: cannot open file.bin"),
    ],
)
def test_how_a_worker_ended(tmp_path, code, printed, line):
    log = tmp_path / "log"
    log.write_text(printed)
    assert supervise.death(code, log) == line


class Slow:
    """A process that ends at its n-th being waited for; it keeps how long it was waited for each time."""

    def __init__(self, ends_at):
        self.limits, self.ends_at = [], ends_at

    def wait(self, timeout=None):
        self.limits.append(timeout)
        if len(self.limits) < self.ends_at:
            raise subprocess.TimeoutExpired("worker", timeout)
        return 0


@pytest.mark.parametrize(
    ("waits", "limits"),
    [
        ([0, 5, 35], [10, 5, 30]),  # of its time limit nothing goes to its waits
        ([7, 8.5, 9], [10, 1.5, 1]),  # those before it began do not count, and it is asked once a second at most
    ],
)
def test_waits_for_other_workers_do_not_count_against_the_time_limit(waits, limits):
    worker, found = Slow(3), iter(waits)
    assert supervise.in_time(worker.wait, 10, lambda: next(found)) == 0
    assert worker.limits == limits


@pytest.mark.parametrize("waits", [[0, 0], [4, 4], [0, 5, 5]])
def test_a_worker_that_waits_for_nobody_has_its_time_limit(waits):
    found = iter(waits)
    with pytest.raises(subprocess.TimeoutExpired):
        supervise.in_time(Slow(9).wait, 10, lambda: next(found))
    assert list(found) == []


def test_a_worker_ends_with_its_parent(tmp_path):
    """Also when the parent is killed without a chance to say so."""
    (tmp_path / "task.json").write_bytes(tasks.encode(hanging(tmp_path)))
    script = (
        "from pathlib import Path; from mlpfusion.workers import supervise, tasks;"
        f"folder = Path({str(tmp_path)!r}); task = tasks.decode_task((folder / 'task.json').read_bytes());"
        "supervise.run(task, folder=folder, name='t', time_limit_s=900)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    assert come(str(tmp_path), 3)  # the parent, the worker, and what that has started by now
    assert sleepers("mlpfusion.stages.profile.worker " + str(tmp_path))
    parent.kill()
    parent.wait()
    assert gone("mlpfusion.stages.profile.worker " + str(tmp_path))
    for orphan in sleepers(str(tmp_path)):  # what the worker had started is nobody's now
        os.kill(orphan, signal.SIGKILL)


def test_a_hang_ends_with_everything_the_worker_started(monkeypatch, tmp_path):
    """The time limit begins when all of it is there: how long a start takes is the machine's affair."""

    class Started(subprocess.Popen):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            monkeypatch.undo()  # for the processes that look
            assert come(str(tmp_path), 2)

    monkeypatch.setattr(subprocess, "Popen", Started)
    answer = supervise.run(hanging(tmp_path), folder=tmp_path, name="task", time_limit_s=0.1)
    assert answer == tasks.Broken(kind="failed", reason="no answer within 0.1 s")
    assert gone(str(tmp_path))


class FakeWorker:
    """A process that ended with code 0 as soon as it was started, having answered what cannot be read."""

    pid = 2**22 + 1  # above the kernel's default limit: no such process
    environments: ClassVar[list[dict[str, str]]] = []

    def __init__(self, command, env, **_):
        self.environments.append(env)
        Path(command[-1]).write_text("{")

    def wait(self, timeout):
        return 0


def test_an_answer_that_cannot_be_read_is_a_failure(monkeypatch, qualify):
    monkeypatch.setattr(subprocess, "Popen", FakeWorker)
    answer = qualify("supports")
    assert answer.kind == "failed"
    assert answer.reason.startswith("the worker's answer cannot be read: ")


def test_the_interpreter_is_on_for_emulation_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(subprocess, "Popen", FakeWorker)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for emulate in (True, False):
        FakeWorker.environments.clear()
        task = tasks.Qualify(
            backend="triton", workload=TINY, device="cpu", seed=0, trace="t", calls=1, emulate=emulate, tokens=None
        )
        supervise.run(task, folder=tmp_path, name="t", time_limit_s=1)
        assert [each.get("TRITON_INTERPRET") for each in FakeWorker.environments] == ["1" if emulate else None]
