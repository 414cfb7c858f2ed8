"""Workers that answer, crash, hang, or are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import msgspec
import pytest

from mlpfusion.measure import supervise, tasks
from mlpfusion.spec import MLPSpec, Workload

TINY = Workload(spec=MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32"), batch=1, seq=4)

BODIES = {
    "answers": "return mlp.down_proj if False else (lambda x: mlp.down_proj(mlp.gate_proj(x) * 0))",
    "dies": "import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGSEGV)",
    "exits": "import os; print('giving up', flush=True); os._exit(7)",
    "hangs": "import subprocess, sys, time; wait = 'import time; time.sleep(600)'; "
    "subprocess.Popen([sys.executable, '-c', wait, __file__]); time.sleep(600)",
    "unknown signal": "import os; print('odd', flush=True); os.kill(os.getpid(), 45)",
    "leaves a thread": "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); "
    "return lambda x: mlp.forward(x)",
    "shows a path": "raise RuntimeError('cannot open /home/somebody/secret/file.bin')",
    "raises": "raise ValueError('first line\\nsecond line')",
    "refuses": "from mlpfusion.errors import BackendUnavailableError as E; raise E('mine', 'not today')",
}


@pytest.fixture
def qualify(tmp_path):
    def run(body: str, time_limit_s: float = 60.0) -> tasks.Answer:
        path = tmp_path / "mine.py"
        path.write_text(
            "class Mine:\n    name = 'mine'\n    def unsupported(self, spec, device): return None\n"
            f"    def bind(self, mlp):\n        {BODIES[body]}\n"
        )
        task = tasks.Qualify(
            backend=f"{path}:Mine",
            workload=TINY,
            device="cpu",
            seed=0,
            trace=str(tmp_path / "trace.json"),
            calls=2,
            emulate=False,
            tokens=None,
        )
        return supervise.run(task, folder=tmp_path, name="task", time_limit_s=time_limit_s)

    return run


def test_an_answer_comes_back(qualify, tmp_path):
    answer = qualify("answers")
    assert isinstance(answer, tasks.Qualified)
    assert answer.accuracy.ratio > 2
    assert answer.traced
    assert (tmp_path / "trace.json").is_file()


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        ("dies", "failed", "the worker was killed by SIGSEGV: last words"),
        ("exits", "failed", "the worker exited with code 7: giving up"),
        ("unknown signal", "failed", "the worker was killed by signal 45: odd"),
        ("shows a path", "failed", "RuntimeError: cannot open file.bin"),
        ("raises", "failed", "ValueError: first line"),
        ("refuses", "unavailable", "not today"),
    ],
)
def test_whatever_happens_becomes_one_line(qualify, body, kind, reason):
    assert qualify(body) == tasks.Broken(kind=kind, reason=reason)


def test_a_thread_left_behind_does_not_keep_the_answer(qualify):
    assert qualify("leaves a thread", time_limit_s=50).accuracy.ratio == 1.0


def test_an_answer_that_cannot_be_read_is_a_failure(monkeypatch, qualify):
    monkeypatch.setattr(tasks, "decode_answer", lambda data: msgspec.json.decode(b"{", type=tasks.Qualified))
    assert "the worker's answer cannot be read" in qualify("answers").reason


def test_a_worker_ends_with_its_parent(tmp_path):
    """Also when the parent is killed without a chance to say so."""
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    name = 'mine'\n    def unsupported(self, spec, device): return None\n"
        f"    def bind(self, mlp):\n        {BODIES['hangs']}\n"
    )
    script = (
        "from pathlib import Path; from mlpfusion.measure import supervise, tasks; from mlpfusion.spec import *;"
        "w = Workload(spec=MLPSpec(hidden_size=16, intermediate_size=32, dtype='float32'), batch=1, seq=4);"
        f"t = tasks.Qualify(backend={str(tmp_path / 'mine.py') + ':Mine'!r}, workload=w, device='cpu', seed=0,"
        f" trace='t', calls=2, emulate=False, tokens=None);"
        f"supervise.run(t, folder=Path({str(tmp_path)!r}), name='t', time_limit_s=60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 30
    while not sleepers("mlpfusion.measure.worker " + str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert sleepers("mlpfusion.measure.worker " + str(tmp_path))
    time.sleep(2)  # past the first lines of its main
    parent.kill()
    parent.wait()
    assert gone("mlpfusion.measure.worker " + str(tmp_path))
    for orphan in sleepers(str(tmp_path)):  # what the worker had started is nobody's now
        os.kill(orphan, signal.SIGKILL)


def sleepers(marker: str) -> list[int]:
    """The processes whose command line holds the marker, a test's own folder."""
    printed = subprocess.run(["ps", "-eww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in printed.splitlines() if marker in line]


def gone(marker: str) -> bool:
    deadline = time.monotonic() + 10
    while sleepers(marker) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not sleepers(marker)


def test_a_hang_ends_with_everything_the_worker_started(qualify, tmp_path):
    assert qualify("hangs", time_limit_s=8) == tasks.Broken(kind="failed", reason="no answer within 8 s")
    assert gone(str(tmp_path))


def test_an_interrupt_ends_the_worker(qualify, tmp_path):
    timer = threading.Timer(8, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        qualify("hangs")
    assert gone(str(tmp_path))


def test_the_interpreter_is_on_for_emulation_alone(monkeypatch, tmp_path):
    seen = {}

    class FakeWorker:
        pid = 2**22 + 1  # above the kernel's default limit: no such process

        def __init__(self, command, env, **_):
            seen.update(env)

        def wait(self, timeout):
            return 1

        def poll(self):
            return 1

    monkeypatch.setattr(subprocess, "Popen", FakeWorker)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for emulate in (True, False):
        seen.clear()
        task = tasks.Qualify(
            backend="triton", workload=TINY, device="cpu", seed=0, trace="t", calls=1, emulate=emulate, tokens=None
        )
        supervise.run(task, folder=tmp_path, name="t", time_limit_s=1)
        assert seen.get("TRITON_INTERPRET") == ("1" if emulate else None)
