"""The process that workers are forked from, with what they import: `python -m mlpfusion.measure.forkserver`.

It says "ready", then for each line with the paths of a task, an answer and a log the new worker's number and, when that
has ended, its exit code.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from mlpfusion.measure import worker

if TYPE_CHECKING:
    from collections.abc import Sequence

# What most workers import: seconds each time. None of it may touch a GPU, which a process has to itself.
PRELOADED: Final = (
    "torch",
    "torch._inductor.compile_fx",
    "mlpfusion_kernels",
    "mlpfusion.reference",
    "mlpfusion.measure.clocks",
    "mlpfusion.measure.memory",
    "mlpfusion.measure.tracer",
    "mlpfusion.measure.traffic",
)


def main() -> None:
    """Import, then fork one worker after the other until nothing more comes in."""
    worker.die_with_parent()
    commands, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # what is printed while importing is no answer
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # the worker that needs it says so
            importlib.import_module(name)
    if _touched():
        sys.exit("CUDA was initialised by an import, and no fork could use it")
    print("ready", file=answers, flush=True)
    for line in commands:
        task, answer, log = map(Path, json.loads(line))
        pid = _forked(task, answer, log, ours=(commands, answers))
        print(pid, file=answers, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    os._exit(0)  # taking down what was imported takes a second


def _forked(task: Path, answer: Path, log: Path, *, ours: Sequence[IO[str]]) -> int:
    """The number of a new worker, which leads a session of its own by now; the files are not for it."""
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
    """Do the task as `python -m mlpfusion.measure.worker` does, down to the exit code."""
    try:
        os.setsid()
        with log.open("wb") as lines:
            os.dup2(lines.fileno(), 1)
            os.dup2(lines.fileno(), 2)
        worker.die_with_parent()
        os.close(leads)  # whoever reads at the other end goes on
        if os.getppid() == mother:
            worker.work(task, answer)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # it must not get back into the loop of the process that it was forked from
        traceback.print_exc()
        return 1
    return 0


def _touched() -> bool:
    """Whether a fork of this process finds CUDA initialised by its parent."""
    import torch

    pid = _fork()
    if pid == 0:
        os._exit(int(torch.cuda._is_in_bad_fork()))
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) != 0


def _fork() -> int:
    with warnings.catch_warnings():
        # Libraries have idle threads of their own, such as OpenBLAS's, which makes them anew after a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


if __name__ == "__main__":
    main()
