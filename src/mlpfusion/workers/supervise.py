"""Runs a task in a worker process with a time limit, and turns every outcome into an answer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from mlpfusion.storage import files, private
from mlpfusion.workers import forking, lifetime, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WAIT_POLL_S: Final = 1.0  # how often at most it is asked whether a worker that is late still waits for others
GRACE_S: Final = 2.0  # for what a worker does at its end, on SIGTERM; a sweep's Ctrl-C has 5 s for all
KILLED_S: Final = 60.0  # for the kernel to be done with one, where nothing else can be waited for
LOG_TAIL_BYTES: Final = 16_384
LINE_LENGTH: Final = 300  # of what a worker printed, in a reason
_Ended = TypeVar("_Ended")


def run(
    task: tasks.Task,
    *,
    folder: Path,
    name: str,
    time_limit_s: float,
    before: Sequence[str] = (),
    fresh: bool = False,
    waited: Callable[[], float] = lambda: 0.0,
) -> tasks.Answer:
    """The worker's answer; a crash, a hang or an unreadable answer becomes a `Broken` that says which.

    The worker's task, answer and log are `folder`/`name`.*. An interrupt ends the worker and everything it started.
    `before` is the command of a program that runs the worker, a profiler say. A `fresh` worker is no fork: forks of one
    process share its layout of memory. `waited` says for how many seconds workers have waited for others so far, which
    is none of this one's time.
    """
    task_path, answer_path = folder / f"{name}.task.json", folder / f"{name}.answer.json"
    log_path = folder / f"{name}.log"
    task_path.write_bytes(tasks.encode(task))
    answer_path.unlink(missing_ok=True)  # of an earlier task of this name
    # Triton's interpreter is for emulation alone: left on, it would take the place of the kernels to be measured.
    # A script of the user's keeps its environment.
    ours = not isinstance(task, tasks.Trace)
    environment = {key: value for key, value in os.environ.items() if not (ours and key == "TRITON_INTERPRET")}
    emulates = isinstance(task, tasks.Qualify) and task.emulate
    if emulates:
        environment["TRITON_INTERPRET"] = "1"
    worker: forking.Process | None = None
    if not isinstance(task, tasks.Trace) and not emulates and not before and not fresh:
        worker = forking.start(task_path, answer_path, log_path, environment=environment, device=task.device)
    if worker is None:
        if not before:
            environment[lifetime.PARENT] = str(os.getpid())
        command = [*before, sys.executable, "-m", "mlpfusion.stages.profile.worker", str(task_path), str(answer_path)]
        with log_path.open("wb") as log:
            # A session of its own, so that the worker's own children (compilers) end with it.
            worker = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
    try:
        code = in_time(lambda seconds: worker.wait(timeout=seconds), time_limit_s, waited)
    except subprocess.TimeoutExpired:
        end(worker)
        return tasks.Broken(kind="failed", reason=f"no answer within {time_limit_s:g} s")
    except BaseException:
        end(worker)
        raise
    end(worker)
    if code != 0 or not answer_path.is_file():
        return tasks.Broken(kind="failed", reason=death(code, log_path))
    try:
        return tasks.decode_answer(answer_path.read_bytes())
    except msgspec.MsgspecError as error:
        return tasks.Broken(kind="failed", reason=f"the worker's answer cannot be read: {error}")


def in_time(wait: Callable[[float], _Ended], limit_s: float, waited: Callable[[], float]) -> _Ended:
    """What `wait` returns once a worker has ended within its limit, for which its waits for others do not count.

    Raises:
        subprocess.TimeoutExpired: it has not, as `wait` says of the seconds that it is given.
    """
    granted = waited()
    while True:
        try:
            return wait(limit_s)
        except subprocess.TimeoutExpired:
            now = waited()
            if now <= granted:
                raise
            limit_s, granted = max(now - granted, WAIT_POLL_S), now


def end(worker: forking.Process) -> None:
    """End the worker's whole session: politely, then at once."""
    try:
        _signal(worker, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(timeout=GRACE_S)
    finally:  # also when a second interrupt comes during the wait
        _signal(worker, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(timeout=KILLED_S)


def _signal(worker: forking.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # nobody of the session is left
        os.killpg(worker.pid, number)


def death(code: int, log: Path) -> str:
    """One line on how a worker ended without an answer: the signal or exit code, and the last line it printed."""
    how = f"exited with code {code}"
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        how = f"was killed by {names.get(-code, f'signal {-code}')}"
    text = b""
    with contextlib.suppress(FileNotFoundError), log.open("rb") as lines:  # it is not there where a disk is full
        lines.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        text = lines.read()
    printed = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    last = private.text(printed[-1]) if printed else files.refusal(log.parent) or ""
    return f"the worker {how}" + (f": {last[:LINE_LENGTH]}{'…' * (len(last) > LINE_LENGTH)}" if last else "")
