"""A Ray cluster as a sweep needs it: its machines with GPUs, tasks on one of them, and how each ended."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from mlpfusion.errors import MlpfusionError, UsageError, first_line
from mlpfusion.stages.sweep.cluster import errand
from mlpfusion.storage import private

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Handle = Any  # of a task: what Ray has for it, hashable
CONNECT_S: Final = 2.0  # for a cluster to take a connection
SILENT_S: Final = 30.0  # after twice this time Ray ends the process
_KIND: Final = "accelerator_type:"  # how Ray names the resource of a kind of GPU


class LostError(Exception):
    """A task's worker or machine is gone, and the task with it."""


class UnplacedError(Exception):
    """A task never began: its machine was gone by then."""


class Machine(NamedTuple):
    """A machine of the cluster: Ray's name for it, its GPUs, and their kind where Ray knows it."""

    id: str
    gpus: int
    kind: str | None


class Pool(Protocol):
    """What a sweep asks of a cluster."""

    def machines(self) -> Sequence[Machine]:
        """Those that are there now and have a GPU."""
        ...

    def start(self, machine: Machine, name: str, *arguments: object, packages: bool) -> Handle:
        """Have a function of `node` called with one GPU of a machine, with our packages brought along if asked."""
        ...

    def ended(self, handles: Iterable[Handle], seconds: float) -> Sequence[Handle]:
        """Those of the tasks that have ended; waits until one has, but not longer than this."""
        ...

    def result(self, handle: Handle) -> errand.Answer:
        """What a task that has ended came back with.

        Raises:
            LostError: its worker or its machine is gone.
            UnplacedError: it never began.
            MlpfusionError: it failed.
        """
        ...


@contextlib.contextmanager
def connected(address: str) -> Iterator[Pool]:
    """The cluster at an address as Ray takes it: `auto`, `ray://HOST:PORT` or `HOST:PORT`.

    Raises:
        UsageError: Ray is not installed, or no cluster answers there.
    """
    try:
        import ray
    except ImportError:
        raise UsageError("--ray needs Ray, which is not installed: pip install 'mlpfusion[cluster]'") from None
    head = _answering(address)
    before = signal.getsignal(signal.SIGTERM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of what later versions of Ray will do
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises anything here, from ConnectionError to AssertionError
            said = f"{type(error).__name__}: {private.text(_reason(error))}"
            raise UsageError(f"--ray {address!r}: no Ray cluster can be used there: {said}") from None
        cluster = _Cluster(ray, head)
        try:
            yield cluster
        finally:
            if cluster.answers():  # else it waits for a minute, deaf to Ctrl-C; its machines find this process gone
                ray.shutdown()
            with contextlib.suppress(ValueError):  # of a thread: there Ray has set none
                signal.signal(signal.SIGTERM, before)


def _answering(address: str) -> tuple[str, int] | None:
    """The host and port of a cluster, None if it is for Ray to find; a UsageError where nothing listens.

    Ray tries that for minutes, and is deaf to Ctrl-C meanwhile.
    """
    there = _noted() if address == "auto" else address
    if there is None:
        return None  # Ray looks for processes of its own, which takes no time
    host, _, port = there.removeprefix("ray://").rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        if address != "auto":
            raise UsageError(f"--ray must be auto, HOST:PORT or ray://HOST:PORT, got {address!r}")
        raise UsageError(f"--ray 'auto': RAY_ADDRESS must be HOST:PORT, got {there!r}")
    head = host.strip("[]"), int(port)
    try:
        socket.create_connection(head, CONNECT_S).close()
    except OSError as error:
        where = f"at {there}" if address == "auto" else "there"
        raise UsageError(f"--ray {address!r}: no Ray cluster can be used {where}: {error.strerror or error}") from None
    return head


def _noted() -> str | None:
    """The address that `auto` stands for, as far as it is written somewhere: by the user, else by `ray start`."""
    named = os.environ.get("RAY_ADDRESS", "")
    if named and named != "auto":
        return named
    try:
        noted = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster").read_text(encoding="utf-8")
    except OSError:
        return None
    return noted.strip() or None


def _reason(error: Exception) -> str:
    """What an error says in one line: the first, or with the last where that ends in a colon."""
    first, last = first_line(error), str(error).strip().rpartition("\n")[2].strip()
    return f"{first} {last}" if first.endswith(":") and last != first else first


class _Cluster:
    """The cluster that this process is connected to."""

    def __init__(self, ray: Any, head: tuple[str, int] | None = None) -> None:
        from ray import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[errand.__name__])  # a machine may not have our packages
        self._ray = ray
        # One process a task, as one on this host; what is tried again, and where, is for the sweep to say.
        self._run = ray.remote(num_gpus=1, max_calls=1, max_retries=0)(errand.run)
        self._packages: Any = None
        self._head = head
        self._answered = time.monotonic()
        self._machines: list[Machine] = []

    def answers(self) -> bool:
        """Whether somebody takes connections at its address; one whose address is not known counts as there."""
        if self._head is None:
            return True
        try:
            socket.create_connection(self._head, CONNECT_S).close()
        except OSError:
            return False
        return True

    def machines(self) -> list[Machine]:
        """Those that are there now; while the head is silent, which Ray itself takes for a minute, those before.

        Raises:
            MlpfusionError: it has been silent for SILENT_S.
        """
        if not self.answers():
            if time.monotonic() - self._answered > SILENT_S:
                raise MlpfusionError(
                    f"the head of the cluster does not answer for {SILENT_S:g} s; the same command goes on"
                )
            return self._machines
        self._answered = time.monotonic()
        found = self._machines = []
        for each in self._ray.nodes():
            gpus = int(each["Resources"].get("GPU", 0))
            if each["Alive"] and gpus:
                kinds = [name.removeprefix(_KIND) for name in each["Resources"] if name.startswith(_KIND)]
                found.append(Machine(each["NodeID"], gpus, kinds[0] if kinds else None))
        return found

    def start(self, machine: Machine, name: str, *arguments: object, packages: bool) -> Handle:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if packages and self._packages is None:
            self._packages = self._ray.put(errand.packed())
        task = self._run.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.id, soft=False),
            accelerator_type=machine.kind,
        )
        return task.remote(name, errand.version(), self._packages if packages else None, *arguments)

    def ended(self, handles: Iterable[Handle], seconds: float) -> Sequence[Handle]:
        ready, _ = self._ray.wait(list(handles), num_returns=1, timeout=seconds)
        return list(ready)

    def result(self, handle: Handle) -> errand.Answer:
        from ray import exceptions

        try:
            answer: errand.Answer = self._ray.get(handle)
        except exceptions.TaskUnschedulableError:
            raise UnplacedError from None
        except exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            raise MlpfusionError(f"{type(cause).__name__}: {private.text(first_line(cause))}") from None
        except exceptions.OutOfMemoryError:
            raise MlpfusionError("its machine ran out of memory, and Ray killed its worker") from None
        except (
            exceptions.NodeDiedError,
            exceptions.WorkerCrashedError,
            exceptions.LocalRayletDiedError,
            exceptions.ObjectLostError,  # the result was still on the machine
        ):
            raise LostError from None
        except exceptions.RayError as error:  # its text has addresses
            raise MlpfusionError(f"Ray says {type(error).__name__}") from None
        return answer
