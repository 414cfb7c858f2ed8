"""Python processes as forks of one that has imported PyTorch, which takes seconds: most tests need not see it again.

They behave as processes that Python was started in, but for what they have imported already. The processes of
pytest-xdist share one server for each environment.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import IO

# Nothing that a server imports reads these; processes that differ in any other have servers of their own.
FREE = {
    *("PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", "PYTHONPATH"),
    *("MLPFUSION_SCRATCH", "MLPFUSION_TEST_OVERFLOW", "MLPFUSION_CACHE_DIR"),
}
_SERVERS: dict[frozenset[tuple[str, str]], socket.socket] = {}


@atexit.register
def _end() -> None:
    for requests in _SERVERS.values():
        requests.close()  # it ends when all have closed theirs


def _server(environment: Mapping[str, str]) -> socket.socket:
    """Where processes of this environment are asked for."""
    key = frozenset((name, value) for name, value in environment.items() if name not in FREE)
    if key not in _SERVERS:
        _SERVERS[key] = _connection(dict(key))
    return _SERVERS[key]


def _connection(environment: dict[str, str]) -> socket.socket:
    """To the server of this environment, which the first who asks starts."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    digest = hashlib.sha256(json.dumps([run, *sorted(environment.items())]).encode()).hexdigest()
    address = f"\0mlpfusion-tests-{digest}"  # no file's, so it goes with the server; 107 bytes at most
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            ours.connect(address)
            return ours
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            try:
                listening.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                time.sleep(0.01)  # another is about to listen
                continue
            listening.listen()
            ours.connect(address)  # before it runs, so that it ends with us
            subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("forkserver.py")), str(listening.fileno())],
                env=environment,
                pass_fds=[listening.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            return ours


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    """Where it is read and where it is written, without a buffer."""
    read, write = os.pipe()
    return os.fdopen(read, "rb", 0), os.fdopen(write, "wb", 0)


class Popen:
    """A forked process as far as `subprocess.Popen` is asked for it: its number, its pipes, and how it ended."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: Any = subprocess.DEVNULL,
        stdout: Any,
        stderr: Any,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
    ) -> None:
        if command[0] != sys.executable:
            raise ValueError(f"{command[0]} is another program than {sys.executable}")
        self.args = command
        self.returncode: int | None = None
        environment = dict(os.environ if env is None else env)
        environment.pop("MLPFUSION_WORKER_OF", None)  # a fork is its server's child, and ends with that
        request = {
            "arguments": [str(each) for each in command[1:]],
            "environment": environment,
            "folder": str(cwd or os.getcwd()),
            "descriptors": list(pass_fds),
            "session": start_new_session,
        }
        self._code, code = os.pipe()
        server = _server(environment)
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        with contextlib.ExitStack() as theirs:
            if stdin == subprocess.PIPE:
                stdin, self.stdin = _pipe()
                theirs.enter_context(stdin)
            if stdout == subprocess.PIPE:
                self.stdout, stdout = _pipe()
                theirs.enter_context(stdout)
            nothing = theirs.enter_context(open(os.devnull, "rb"))
            streams = [nothing if each == subprocess.DEVNULL else each for each in (stdin, stdout, stderr)]
            descriptors = [code, *(stream.fileno() for stream in streams), *pass_fds]
            socket.send_fds(server, [json.dumps(request).encode()], descriptors)
        os.close(code)
        self.pid = int(server.recv(64))

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ended = select.poll()
            ended.register(self._code, select.POLLIN)
            if not ended.poll(None if timeout is None else timeout * 1e3):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(os.read(self._code, 64) or -signal.SIGKILL)  # its server went, and it as well
            os.close(self._code)
        return self.returncode


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with what the process prints captured as text."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = Popen(command, stdout=out, stderr=err, env=env, cwd=cwd).wait()
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read().decode())
    done = subprocess.CompletedProcess(command, code, *printed)
    if check:
        done.check_returncode()
    return done


@contextlib.contextmanager
def processes_of(module: Any) -> Iterator[None]:
    """Within, the processes that this module starts are forks."""
    before = module.subprocess
    module.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": Popen})
    try:
        yield
    finally:
        module.subprocess = before


def workers() -> contextlib.AbstractContextManager[None]:
    """Within, the workers of `validate` are forks."""
    from mlpfusion.stages.validate.judge import worker_handle

    return processes_of(worker_handle)
