"""Tasks whose workers do odd things, and the processes that these leave behind."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from mlpfusion.measure import tasks
from mlpfusion.spec import MLPSpec, Workload

if TYPE_CHECKING:
    from pathlib import Path

TINY = Workload(spec=MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32"), batch=1, seq=4)

# What a stranger's `unsupported` may do: a worker asks it before it imports what takes long.
BODIES = {
    "supports": "return None",
    "dies": "import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGSEGV)",
    "shows a path": "raise RuntimeError('cannot open /home/somebody/secret/file.bin')",
    "raises": "raise ValueError('first line\\nsecond line')",
    "refuses": "from mlpfusion.errors import BackendUnavailableError as E; raise E('mine', 'not today')",
    "quits": "raise SystemExit(7)",
    "quits with a word": "raise SystemExit('needs a licence key')",
    "asks": "assert not __import__('sys').stdin.read(); raise ValueError('nobody answers')",
    "leaves something": "import os, sys; sys.left = os.environ['LEFT'] = 'x'; raise ValueError('left')",
    "finds nothing": 'import os, sys; raise ValueError(f\'{hasattr(sys, "left")} {os.environ.get("LEFT")}\')',
    "shows its environment": "from os import environ, getcwd, path; "
    "raise ValueError(f'{environ.get(\"SHOWN\")} in {path.basename(getcwd())}')",
    "is slow": "import time; time.sleep(2); raise ValueError('slow')",
    "hangs": "import subprocess, sys, time; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', __file__]); time.sleep(600)",
}
MINE = """
class Mine:
    name = "mine"
    def unsupported(self, spec, device):
        {body}
    def bind(self, mlp):
        import threading, time
        threading.Thread(target=time.sleep, args=(600,)).start()
        return lambda x: mlp.down_proj(mlp.gate_proj(x) * 0)
"""


def task_for(body: str, folder: Path) -> tasks.Qualify:
    """To qualify a backend in a file of this folder whose `unsupported` is this body."""
    path = folder / "mine.py"
    path.write_text(MINE.format(body=BODIES[body]))
    return tasks.Qualify(
        backend=f"{path}:Mine",
        workload=TINY,
        device="cpu",
        seed=0,
        trace=str(folder / "trace.json"),
        calls=2,
        emulate=False,
        tokens=None,
    )


def sleepers(marker: str) -> list[int]:
    """The processes whose command line holds the marker, a test's own folder."""
    printed = subprocess.run(["ps", "-eww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in printed.splitlines() if marker in line]


def come(marker: str, count: int) -> bool:
    """Whether there are soon as many such processes."""
    deadline = time.monotonic() + 60
    while len(sleepers(marker)) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    return len(sleepers(marker)) >= count


def gone(marker: str) -> bool:
    deadline = time.monotonic() + 10
    while sleepers(marker) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not sleepers(marker)
