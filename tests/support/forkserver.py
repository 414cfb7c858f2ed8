"""Forks Python processes of one that has imported PyTorch: `python forkserver.py DESCRIPTOR`, run by `forked`.

The descriptor is a listening socket's. Each request that comes through a connection to it is answered by the number of
the new process, whose exit code is written, as text, into the first of the descriptors that came along; the next three
are its standard streams.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# Not the modules that are run, which a process imports as its own. The first gradient imports the symbolic shapes, with
# SymPy: 2.4 s of a core.
PRELOADED = (
    *("torch", "torch.fx.experimental.symbolic_shapes", "mlpfusion_kernels"),
    *("mlpfusion.stages.validate.worker.main", "mlpfusion.stages.profile.worker"),
)
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


class Running(NamedTuple):
    """A process: its number, where its exit code is written, and the connection that asked for it."""

    pid: int
    code: int
    asked_by: int


def serve(listening: socket.socket) -> Callable[[], None] | None:
    """Fork until all who have asked are gone; in a fork, what it is to do."""
    events = select.poll()
    events.register(listening, select.POLLIN)
    asking: dict[int, socket.socket] = {}
    running: dict[int, Running] = {}
    while True:
        for descriptor, _ in events.poll():
            if descriptor == listening.fileno():
                connection, _ = listening.accept()
                asking[connection.fileno()] = connection
                events.register(connection, select.POLLIN)
            elif descriptor in asking:
                connection = asking[descriptor]
                data, received, _, _ = socket.recv_fds(connection, 1 << 20, 64)
                if not data:
                    for one in running.values():
                        if one.asked_by == descriptor:
                            os.kill(one.pid, signal.SIGKILL)
                    events.unregister(descriptor)
                    asking.pop(descriptor).close()
                    if not asking and not select.select([listening], [], [], 0)[0]:
                        return None
                    continue
                request = json.loads(data)
                pid = _fork(request["session"])
                if pid == 0:
                    for other, one in running.items():
                        os.close(other)
                        os.close(one.code)
                    for each in asking.values():
                        each.close()
                    return lambda request=request, received=received: run(request, received)  # type: ignore[misc]
                for stream in received[1:]:
                    os.close(stream)
                ended = os.pidfd_open(pid)
                running[ended] = Running(pid, received[0], descriptor)
                events.register(ended, select.POLLIN)
                with contextlib.suppress(BrokenPipeError):  # who asked for it has gone
                    connection.send(str(pid).encode())
            else:
                events.unregister(descriptor)
                one = running.pop(descriptor)
                status = os.waitstatus_to_exitcode(os.waitpid(one.pid, 0)[1])
                with contextlib.suppress(BrokenPipeError):
                    os.write(one.code, str(status).encode())
                os.close(one.code)
                os.close(descriptor)


def _fork(session: bool) -> int:
    """As os.fork; the new process leads a session by then, if it is to."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # OpenBLAS has idle threads, which it makes anew
        pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(read)
        if session:
            os.setsid()
    os.close(write)
    if pid:
        os.read(read, 1)
        os.close(read)
    return pid


def run(request: dict[str, Any], received: list[int]) -> None:
    """Be what `python ARGUMENTS` is, with this environment, folder and descriptors."""
    os.close(received[0])
    wanted = [0, 1, 2, *request["descriptors"]]
    apart = [fcntl.fcntl(each, fcntl.F_DUPFD, max(wanted) + 1) for each in received[1:]]
    for each in received[1:]:
        os.close(each)
    for each, number in zip(apart, wanted, strict=True):
        os.dup2(each, number)
        os.close(each)
    os.chdir(request["folder"])
    _take(request["environment"])
    random.seed()
    how, *rest = request["arguments"]
    if how == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = rest
        sys.modules.pop(rest[0], None)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(how))
        sys.argv = [how, *rest]
        runpy.run_path(how, run_name="__main__")


def _take(environment: dict[str, str]) -> None:
    """Have this environment, and what Python does at its start with folders of PYTHONPATH that the server had not."""
    before, now = (each.get("PYTHONPATH", "").split(os.pathsep) for each in (os.environ, environment))
    os.environ.clear()
    os.environ.update(environment)
    if more := [folder for folder in now if folder and folder not in before]:
        sys.path[1:1] = more
        sys.modules.pop("sitecustomize", None)
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("sitecustomize")


if __name__ == "__main__":
    asked = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # a fork's collector would write into each of these objects, and so copy the memory of all of them
    gc.enable()
    todo = serve(asked)
    asked.close()
    if todo is not None:
        todo()
