"""The judge's handle of a worker: starts it when needed, enforces time limits, replaces it when it misbehaves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion.errors import MlpfusionError
from mlpfusion.stages.validate import channel
from mlpfusion.workers import supervise

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.device import DeviceKind
    from mlpfusion.spec import Activation
    from mlpfusion.stages.validate.channel import Facts, Tensors

SCRATCH: Final = "MLPFUSION_SCRATCH"  # a folder of the judge's, which it removes
START_S: Final = 300.0  # importing torch takes 3 s alone, and a minute on a machine that is busy or cold


class RaisedError(MlpfusionError):
    """A probe or a load raised in the worker; `why` is that of `channel.Raised`."""

    def __init__(self, raised: channel.Raised) -> None:
        super().__init__(f"{raised.exception}: {raised.text}" if raised.text != raised.exception else raised.exception)
        self.why = raised.why
        self.exception = raised.exception
        self.text = raised.text
        self.left = raised.left

    @property
    def is_unwritten(self) -> bool:
        """Whether the called function, such as a backward, is not implemented, rather than failing."""
        says = ("not implemented", "no autograd formula was registered")  # the latter of a custom operator
        return self.exception == "NotImplementedError" or any(each in self.text for each in says)


class DiedError(MlpfusionError):
    """The worker crashed, hung or lost its device while a target ran; the text says which."""


class UndecidableError(MlpfusionError):
    """A check cannot be decided here; the text says why."""


class Hired:
    """One worker at a time on one device. `folder` keeps its logs."""

    def __init__(self, folder: Path, device: DeviceKind, name: str) -> None:
        self.device = device
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection[Any, Any] | None = None
        self._fresh = self._served = False
        self._number = 0
        self._loaded: tuple[str, Activation] | None = None
        self.started = 0

    def load(self, target: str, activation: Activation, *, time_limit_s: float) -> channel.Loaded:
        """Have the worker load a target.

        Raises:
            RaisedError: its import or its kind.
            DiedError: it took the worker down.
        """
        self._loaded = None
        with contextlib.suppress(OSError):
            os.truncate(self._log, 0)  # what an earlier target printed is no reason for this one's end
        request = channel.Load(target=target, activation=activation, device=self.device)
        try:
            answer = self._request(request, time_limit_s)
        except RaisedError as error:
            # An earlier target may be why: two cannot define the same operator in one process, say.
            if error.why == "misused" or not self._served:
                raise
            answer = None
        if answer is None or isinstance(answer, channel.Stale):
            self.retire()
            answer = self._request(request, time_limit_s)
        if not isinstance(answer, channel.Loaded):
            raise self._nonsense(f"it answered {type(answer).__name__} where a target was to be loaded")
        self._served = True
        self._loaded = (target, activation)
        return answer

    def ask(self, probe: str, tensors: Tensors, *, time_limit_s: float, **options: Any) -> tuple[Tensors, Facts]:
        """Run a probe on the loaded target: its raw tensors, on the CPU, and its facts.

        Raises:
            RaisedError: the target raised.
            DiedError: it took the worker down.
            UndecidableError: the judge's own code raised.
        """
        request = channel.Ask(probe=probe, tensors=channel.pack(tensors), options=options)
        try:
            answer = self._request(request, time_limit_s)
        except RaisedError as error:
            if error.why == "internal":  # which no check must take for a refusal
                raise UndecidableError(f"an error of mlpfusion's own, none of the target's: {error}") from error
            raise
        if not isinstance(answer, channel.Raw):
            raise self._nonsense(f"it answered {type(answer).__name__} where results were expected")
        return channel.unpack(answer.tensors), answer.facts

    def holds(self, target: str, activation: Activation) -> bool:
        """Whether this target is the one that is loaded."""
        return self._process is not None and self._loaded == (target, activation)

    def retire(self) -> None:
        """End the worker and everything it started."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            supervise.end(self._process)
        self._process = self._pipe = None
        self._loaded = None

    def _request(self, request: channel.Load | channel.Ask, time_limit_s: float) -> channel.Answer:
        if self._process is None:
            self._start()
        assert self._pipe is not None
        assert self._process is not None
        limit = time_limit_s + (START_S if self._fresh else 0.0)
        try:
            self._number += 1
            self._pipe.send_bytes(channel.framed(self._number, os.getpid(), channel.encode(request)))
            if not self._pipe.poll(limit):
                self.retire()
                raise DiedError(f"no answer within {time_limit_s:g} s: it hangs, or is that slow")
            number, process, data = channel.unframed(self._pipe.recv_bytes())
            answer = channel.decode_answer(data)
        except (EOFError, OSError) as error:
            raise DiedError(self._death()) from error
        except (msgspec.MsgspecError, ValueError) as error:
            raise self._nonsense(f"its answer cannot be read: {error}") from error
        if (number, process) != (self._number, self._process.pid):
            raise self._nonsense(
                f"process {process} answered request {number} where process {self._process.pid} was to answer "
                f"{self._number}: it is a copy of the worker that the target made"
            )
        self._fresh = False
        if isinstance(answer, channel.Raised):
            if answer.why == "poisoned":  # nothing that runs on this device in this process can be believed any more
                self.retire()
                raise DiedError(f"{answer.exception}: {answer.text}")
            raise RaisedError(answer)
        return answer

    def _nonsense(self, text: str) -> DiedError:
        """What to raise for an answer that cannot be believed; the worker that gave it is ended."""
        self.retire()
        return DiedError(text)

    def _start(self) -> None:
        ours, theirs = Pipe()
        environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        if self.device == "cpu":
            environment["TRITON_INTERPRET"] = "1"
            environment.setdefault("OMP_NUM_THREADS", "1")  # the operands are small, and the judge computes beside it
        environment[SCRATCH] = str(self._log.parent)
        environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of processes for one kernel
        command = [sys.executable, "-m", "mlpfusion.stages.validate.worker.main", str(theirs.fileno()), self.device]
        command += [os.pathsep.join(sys.path)]  # a test's folder, say, that pytest has put there
        with self._log.open("ab") as log:
            # A session of its own, so that the worker's own children (compilers) end with it.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        self._pipe = ours
        self._fresh = True
        self._served = False
        self.started += 1

    def _death(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=supervise.KILLED_S)
        except subprocess.TimeoutExpired:
            self.retire()
            return "the worker closed its pipe and went on"
        said = supervise.death(code, self._log)
        self.retire()
        return said

    def __enter__(self) -> Hired:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.retire()
