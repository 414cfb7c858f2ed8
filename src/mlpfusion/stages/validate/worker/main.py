"""The process that runs targets: `python -m mlpfusion.stages.validate.worker.main DESCRIPTOR DEVICE PATH`.

It answers the requests that come through the pipe of that descriptor, one after the other, until the pipe closes. What
a target prints goes to the log that stands for stdout and stderr. PATH is where the judge imports from, too.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

import torch

from mlpfusion.device import detect
from mlpfusion.errors import UsageError, first_line
from mlpfusion.stages.validate import channel, own_errors
from mlpfusion.stages.validate.worker import (
    emulation,
    functions,
    guard,
    launches,
    leftovers,
    settings,
    update_probes,
)
from mlpfusion.stages.validate.worker.author_probes import AUTHOR_PROBES
from mlpfusion.stages.validate.worker.far_probes import FAR_PROBES
from mlpfusion.stages.validate.worker.probes import PROBES, Run
from mlpfusion.stages.validate.worker.results import NoTensorError
from mlpfusion.stages.validate.worker.speed_probes import SPEED_PROBES
from mlpfusion.stages.validate.worker.state_probes import STATE_PROBES
from mlpfusion.stages.validate.worker.targets import imports, loader
from mlpfusion.stages.validate.worker.targets.autotuners import Pins, on_launch
from mlpfusion.stages.validate.worker.transforms.alone import ALONE_PROBES
from mlpfusion.stages.validate.worker.transforms.compiled import COMPILED_PROBES
from mlpfusion.stages.validate.worker.transforms.crossed import CROSSED_PROBES
from mlpfusion.stages.validate.worker.transforms.modes import MODE_PROBES
from mlpfusion.storage import private
from mlpfusion.workers import lifetime

if TYPE_CHECKING:
    from mlpfusion.device import Device

ALL_PROBES: Final = (
    PROBES
    | update_probes.PROBES
    | COMPILED_PROBES
    | MODE_PROBES
    | ALONE_PROBES
    | CROSSED_PROBES
    | SPEED_PROBES
    | STATE_PROBES
    | AUTHOR_PROBES
    | FAR_PROBES
)


def main() -> None:
    """Serve until the judge has no more to ask."""
    lifetime.obey()
    lifetime.die_with_parent()  # one that has ended already has closed the pipe
    pipe = Connection(int(sys.argv[1]))
    os.register_at_fork(after_in_child=pipe.close)  # a child that comes back from its target answers nothing
    here = detect(sys.argv[2])
    sys.path += [entry for entry in sys.argv[3].split(os.pathsep) if entry and entry not in sys.path]
    served = _Served(here)
    while True:
        try:
            number, _, data = channel.unframed(pipe.recv_bytes())
        except EOFError:
            break
        answer = channel.encode(served.answer(channel.decode_request(data)))
        pipe.send_bytes(channel.framed(number, os.getpid(), answer))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread that a target left behind must not keep the process


class _Served:
    """The target at hand, and what is known of the interpreter that runs it."""

    def __init__(self, here: Device) -> None:
        self.here = here
        self.device = torch.device("cuda", here.index) if here.kind == "cuda" else torch.device("cpu")
        self.emulation = emulation.prepare() if here.interpreted else None
        self.target: str | None = None
        self.run: Run | None = None
        on_launch(lambda: None if self.run is None else self.run.pins)
        guard.install()  # it replaces functions of PyTorch as well
        launches.install()
        self.own: frozenset[str] = frozenset()  # packages of the target
        self.imports: dict[str, dict[str, str]] = {}  # what importing each file of targets left changed
        self.before = leftovers.Before()
        self.left_by_raising: dict[str, str] = {}  # settings that the call at hand changed before it raised
        self.counted: dict[str, object] = {}  # the settings that no call reads, as the target's import left them

    def answer(self, request: channel.Load | channel.Ask) -> channel.Answer:
        """Always returns an answer; the judge notices the end of the process."""
        self.left_by_raising = {}
        settings.LEFT_WITHIN.clear()
        try:
            # The same state for every target, whatever an earlier one left behind.
            torch.set_float32_matmul_precision("highest")
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.allow_tf32 = False
            torch.set_grad_enabled(True)
            torch.set_default_dtype(torch.float32)
            _keep_compiling()
            return self._load(request) if isinstance(request, channel.Load) else self._ask(request)
        except (Exception, SystemExit) as error:  # third-party code may raise anything
            traceback.print_exc()
            return channel.Raised(
                why=_why(error),
                exception=type(error).__name__,
                text=private.text(first_line(error)),
                left=self.left_by_raising,
            )

    def _load(self, request: channel.Load) -> channel.Answer:
        folders = loader.folders(request.target)
        # What a target did itself it may find again: one that is loaded twice is not worth seconds of imports.
        again = request.target == self.target
        counted = again and self.run is not None
        changed = [] if again else self.before.changed(folders)
        if changed:
            return channel.Stale(left=tuple(changed))
        self.before.serve(folders)
        self.target = request.target
        if self.run is not None:
            self.run.pins.pin(None)  # the next target may have the same kernels
            self.run = None
        source = request.target.rpartition(":")[0] or request.target
        settings.stir()
        state = settings.read() if source not in self.imports else {}
        try:
            self.own = frozenset({source.partition(".")[0], *(each.name for each in folders)})
            with imports.apart(state, self.own):
                target = loader.load(request.target, request.activation, self.here)
        except loader.SeveralError as several:
            return channel.Raised(why="misused", exception="several", text="\n".join(several.names))
        if source not in self.imports:  # what was imported before changes nothing now
            kept = {name: value for name, value in state.items() if name not in settings.OF_CONSTRUCTORS}
            self.imports[source] = settings.changed(kept)
        settings.stir()
        if not counted:
            self.counted = settings.read(settings.COUNTED)
        pins = Pins(target.kernels)
        self.run = Run(target, self.device, pins)
        return channel.Loaded(
            kind=target.kind,
            described=target.described,
            configurations=pins.count,
            kernels=len(target.kernels),
            interpreted=self.here.interpreted,
            unfit=None if self.emulation is None else self.emulation.unfit,
            left=self.imports[source],
        )

    def _ask(self, request: channel.Ask) -> channel.Answer:
        if self.run is None:
            raise RuntimeError("nothing is loaded")
        if self.emulation is not None:
            self.emulation.bf16_arithmetic = False
        probe = ALL_PROBES[request.probe]
        # Tuning would take time, and what it picks differs from run to run.
        pins = self.run.pins
        pins.pin(request.options.get("configuration", 0))
        state, given = settings.read(settings.EACH), channel.unpack(request.tensors)
        # A speed probe's calls may import what they have imported before: no watch is timed.
        watched = contextlib.nullcontext() if request.probe in SPEED_PROBES else imports.apart(state, self.own)
        turned = emulation.reversed_programs(is_on=request.options.get("reversed", False))
        try:
            with watched, launches.counted() as launched, turned:
                tensors, facts = probe(self.run, given, request.options)
        except (Exception, SystemExit):
            self.left_by_raising = settings.LEFT_WITHIN | settings.changed(state)
            raise
        facts["left"] = settings.LEFT_WITHIN | settings.changed(state)
        facts["launches"] = launched.count + launched.replays
        if request.probe == "state":
            facts["left"] |= settings.changed(self.counted)
        if request.options.get("functions"):
            facts["replaced"] = self.before.functions.replaced()
            facts["judging"] = functions.judging(facts["replaced"])
        facts["configuration"], facts["gave_way"] = pins.said(), pins.gave_way
        facts["configurations"] = pins.count  # with those that were found when they ran
        if self.emulation is not None:
            facts["bf16_arithmetic"] = self.emulation.bf16_arithmetic
        return channel.Raw(tensors=channel.pack(tensors), facts=facts)


def _keep_compiling() -> None:
    """Let Dynamo compile as many kinds of call as there are checks.

    After eight of one function (torch 2.11 to 2.13) it gives up: a fullgraph target would seem to break, and another
    would run uncompiled from there on, so that the verdict would be one on eager. Importing Dynamo takes a second, and
    no target has met the limit before it was imported.
    """
    if "torch._dynamo" in sys.modules:
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = sys.maxsize


def _why(error: BaseException) -> channel.Why:
    text = str(error)
    if isinstance(error, UsageError):
        return "misused"
    if isinstance(error, NoTensorError):
        return "wrong"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text:
        return "memory"
    if "CUDA error" in text or "HIP error" in text or type(error).__name__ == "AcceleratorError":
        return "poisoned"
    if emulation.is_limit(error):
        return "interpreter"
    return "internal" if own_errors.is_own(error) else "refused"


if __name__ == "__main__":
    main()
