"""The process that workers are forked from: `python -m mlpfusion.stages.profile.forkserver`.

It says "ready", then for each line with the paths of a task, an answer and a log the new worker's number and, when that
has ended, its exit code.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from mlpfusion.stages.profile import worker
from mlpfusion.workers import lifetime

if TYPE_CHECKING:
    from collections.abc import Sequence

_BY_NVML: Final = "PYTORCH_NVML_BASED_CUDA_CHECK"
# What most workers import: seconds each time.
PRELOADED: Final = (
    "torch",
    "torch._inductor.compile_fx",
    "mlpfusion_kernels",
    "mlpfusion.reference",
    "mlpfusion.measure.clocks",
    "mlpfusion.measure.memory",
    "mlpfusion.measure.tracer",
    "mlpfusion.traffic.recording.collect",
)


def main() -> None:
    """Import, then fork one worker after the other until nothing more comes in."""
    lifetime.obey()  # and so do the workers
    commands, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # what is printed while importing is no answer
    os.close(os.pidfd_open(os.getpid()))  # before anybody relies on it: Linux has it from 5.3 on
    preload()
    if sys.argv[1] == "cuda" and not _usable():
        raise RuntimeError("a fork of it could not use the GPU")
    print("ready", file=answers, flush=True)
    for line in commands:
        task, answer, log = map(Path, json.loads(line))
        pid = _forked(task, answer, log, ours=(commands, answers))
        print(pid, file=answers, flush=True)
        print(_ended(pid, commands), file=answers, flush=True)


def _ended(pid: int, commands: IO[str]) -> int:
    """The exit code of a worker; without a parent to report to, the worker ends, and this process with it."""
    ended = os.pidfd_open(pid)
    wait = select.poll()
    wait.register(ended, select.POLLIN)
    wait.register(commands, 0)  # the end of the other side is reported unprompted
    if ended not in dict(wait.poll()):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os._exit(0)
    os.close(ended)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def preload() -> None:
    """Import what workers need, without initialising CUDA: no fork could use it then."""
    # Inductor asks at import whether there is a GPU; this has PyTorch ask the driver's monitor instead of CUDA.
    before = os.environ.get(_BY_NVML)
    os.environ[_BY_NVML] = "1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those that are errors would leave half of a module
        for name in PRELOADED:
            with contextlib.suppress(ImportError):  # the worker that needs it says so
                importlib.import_module(name)
    if before is None:
        del os.environ[_BY_NVML]
    else:
        os.environ[_BY_NVML] = before


def _forked(task: Path, answer: Path, log: Path, *, ours: Sequence[IO[str]]) -> int:
    """The process id of a new worker, which leads its own session by now; the files are not for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    mother, pid = os.getpid(), _fork()
    if pid == 0:
        for file in ours:
            os.close(file.fileno())
        os._exit(_worker(task, answer, log, mother=mother, leads=write))
    os.close(write)
    os.read(read, 1)
    os.close(read)
    return pid


def _worker(task: Path, answer: Path, log: Path, *, mother: int, leads: int) -> int:
    """Do the task as `python -m mlpfusion.stages.profile.worker` does, down to the exit code."""
    try:
        os.setsid()
        with log.open("wb") as lines:
            os.dup2(lines.fileno(), 1)
            os.dup2(lines.fileno(), 2)
        lifetime.die_with_parent(mother)
        os.close(leads)  # whoever reads at the other end goes on
        worker.work(task, answer)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        sys.stderr.write(f"{stop.code}\n")
        return 1
    except BaseException:  # it must not get back into the loop of the process that it was forked from
        traceback.print_exc()
        return 1
    return 0


def _usable() -> bool:
    """Whether a fork of this process can use the GPU."""
    import torch

    pid = _fork()
    if pid == 0:
        code = 1
        try:
            lifetime.die_with_parent()
            torch.zeros(1, device="cuda").item()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _fork() -> int:
    with warnings.catch_warnings():
        # Libraries have idle threads of their own, such as OpenBLAS's, which restarts them after a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # taking down what was imported takes a second
