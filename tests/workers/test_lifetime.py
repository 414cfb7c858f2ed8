"""A worker ends with its parent and on SIGTERM, whatever signals it inherited."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from support import signal_world

linux = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
OBEYS = "from mlpfusion.workers import lifetime; lifetime.obey(); print(flush=True); import time; time.sleep(600)"
CHILD = (
    "import os, sys, time; from mlpfusion.workers import lifetime; lifetime.die_with_parent(int(sys.argv[1])); "
    "print(os.getpid(), flush=True); time.sleep(600)"
)
PARENT = f"import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', {CHILD!r}, str(os.getpid())]).wait()"


@pytest.mark.parametrize("world", signal_world.WORLDS)
def test_a_worker_ends_on_sigterm_in_every_world(world: str) -> None:
    command = signal_world.command(world, "SIGTERM", sys.executable, "-c", OBEYS)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM


def gone(process: int) -> bool:
    for _ in range(600):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@linux
def test_it_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)  # it runs
        parent.kill()
    assert gone(child)


def test_where_the_parent_is_another_already_it_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "1"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
