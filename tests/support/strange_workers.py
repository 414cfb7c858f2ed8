"""Tasks whose workers do odd things, and the processes that these leave behind."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.workers import tasks

if TYPE_CHECKING:
    from pathlib import Path

HANG_S = 600  # longer than anything takes on a busy machine
TINY = Workload(spec=MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32"), batch=1, seq=4)

# What a third-party `unsupported` may do: a worker calls it before the slow imports.
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
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(6000)', __file__]); time.sleep(6000)",
}
MINE = """
class Mine:
    name = "mine"
    def unsupported(self, spec, device):
        {first}
        {body}
    def bind(self, mlp):
        import threading, time
        threading.Thread(target=time.sleep, args=(6000,)).start()
        return lambda x: mlp.down_proj(mlp.gate_proj(x) * 0)
"""


HANGS = """
import subprocess, sys, time
{first}
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(6000)", __file__])
time.sleep(6000)
"""


def hanging(folder: Path, first: str = "pass") -> tasks.Trace:
    """To trace a script of this folder that starts a process and then hangs, before anything imports torch."""
    script = folder / "hangs.py"
    script.write_text(HANGS.format(first=first))
    return tasks.Trace(script=str(script), function="f", trace=str(folder / "trace.json"), calls=1)


def task_for(body: str, folder: Path, first: str = "pass") -> tasks.Qualify:
    """To qualify a backend in a file of this folder whose `unsupported` does `first` and is then this body."""
    path = folder / "mine.py"
    path.write_text(MINE.format(first=first, body=BODIES[body]))
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
    end = time.monotonic() + HANG_S
    while len(sleepers(marker)) < count and time.monotonic() < end:
        time.sleep(0.1)
    return len(sleepers(marker)) >= count


def gone(marker: str) -> bool:
    """Whether there is soon none."""
    end = time.monotonic() + HANG_S
    while sleepers(marker) and time.monotonic() < end:
        time.sleep(0.1)
    return not sleepers(marker)
