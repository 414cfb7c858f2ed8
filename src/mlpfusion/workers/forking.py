"""Starts workers by forking a process that has imported what they need, or one by one where it cannot fork."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mlpfusion.device import DeviceKind

_LOG: Final = logging.getLogger("mlpfusion")
LONGEST_POLL_S: Final = 86_400.0  # the system takes 2**31 milliseconds at most, 25 days
START_S: Final = 300.0  # importing PyTorch takes 5 s alone, and a minute on a machine that is busy or cold
END_S: Final = 30.0


class Process(Protocol):
    """A started worker, as its parent sees it; it leads its own session."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal; or a `subprocess.TimeoutExpired`."""
        ...


class ForkServer:
    """One process that forks a worker at a time, all of them with the environment and folder that it was started in."""

    def __init__(self, environment: Mapping[str, str], device: DeviceKind) -> None:
        self.made_for = (dict(environment), os.getcwd(), device)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mlpfusion.stages.profile.forkserver", device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
            start_new_session=True,  # an interrupt from the terminal is for the one who asks
        )
        self._ready = False
        self._worker: ForkedWorker | None = None
        self._unread = b""

    def ready(self) -> bool:
        """Wait until it has imported everything; False if it cannot serve, and the log says why."""
        try:
            self._ready = self.line(START_S) == "ready"
            if self._ready:
                return True
            reason = f"said {self._unread.decode(errors='replace')!r}"
        except subprocess.TimeoutExpired:
            reason = f"was not ready within {START_S:g} s"
        except EOFError:
            self._errors.seek(0)
            printed = self._errors.read().decode(errors="replace").strip().splitlines()
            reason = f"ended: {printed[-1] if printed else 'it said nothing'}"
        _LOG.warning("each worker imports PyTorch again: the process to fork them from %s", reason)
        return False

    @property
    def busy(self) -> bool:
        """Whether a worker of its has not been waited for."""
        return self._worker is not None and self._worker.code is None

    def fork(self, task: Path, answer: Path, log: Path) -> ForkedWorker:
        """A new worker."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(task), str(answer), str(log)]).encode() + b"\n")
        self._process.stdin.flush()
        self._worker = ForkedWorker(self, int(self.line(START_S)))
        return self._worker

    def line(self, timeout: float | None) -> str:
        """The next line that it says.

        Raises:
            subprocess.TimeoutExpired: it says nothing for so long.
            EOFError: it has ended.
        """
        assert self._process.stdout is not None
        end = None if timeout is None else time.monotonic() + timeout
        said = select.poll()
        said.register(self._process.stdout, select.POLLIN)
        while b"\n" not in self._unread:
            left_s = LONGEST_POLL_S if end is None else max(0.0, end - time.monotonic())
            if not said.poll(min(left_s, LONGEST_POLL_S) * 1e3):
                if timeout is None or left_s > LONGEST_POLL_S:
                    continue
                raise subprocess.TimeoutExpired(self._process.args, timeout)
            more = os.read(self._process.stdout.fileno(), 4096)
            if not more:
                raise EOFError
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def end(self) -> None:
        """End it, and a worker that is left; it ends by itself when nothing more can come, if it listens already."""
        assert self._process.stdin is not None
        if not self._ready:
            self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


class ForkedWorker:
    """One worker, whose exit code its server has."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None
        self._server = server

    def wait(self, timeout: float | None = None) -> int:
        """As `Process`; a worker whose server was killed went with it."""
        if self.code is None:
            try:
                self.code = int(self._server.line(timeout))
            except EOFError:
                self.code = -signal.SIGKILL
        return self.code


class _Kept:
    """The server of the process, while somebody keeps one."""

    depth: int = 0
    server: ForkServer | None = None
    failed: bool = False


_KEPT: Final = _Kept()
_LOCK: Final = threading.RLock()


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Within, workers are forked; uses inside each other share one server."""
    with _LOCK:
        _KEPT.depth += 1
    try:
        yield
    finally:
        with _LOCK:
            _KEPT.depth -= 1
            if _KEPT.depth == 0:
                _give_up()
                _KEPT.failed = False


def start(task: Path, answer: Path, log: Path, *, environment: Mapping[str, str], device: DeviceKind) -> Process | None:
    """A forked worker, or None where there is no server for this environment, or it has its hands full."""
    with _LOCK:
        if not _KEPT.depth or _KEPT.failed or not sys.platform.startswith("linux"):
            return None
        server = _KEPT.server
        if server is not None and server.busy:
            return None
        if server is None or server.made_for != (dict(environment), os.getcwd(), device):
            _give_up()
            server = _KEPT.server = ForkServer(environment, device)
            if not server.ready():
                _give_up()
                _KEPT.failed = True
                return None
        try:
            return server.fork(task, answer, log)
        except (EOFError, OSError, subprocess.TimeoutExpired):  # somebody ended it; the next worker gets a new one
            _give_up()
            return None


def _give_up() -> None:
    server, _KEPT.server = _KEPT.server, None
    if server is not None:
        server.end()
