"""A process that measures one cell after the other on one card: `python -m mlpfusion.stages.sweep.worker`.

It says "ready", then for each line with an order and the path of an answer its steps and, at the end, "done" or why
not.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion import device as devices
from mlpfusion.errors import MlpfusionError, first_line
from mlpfusion.measure import turns
from mlpfusion.stages.sweep.measure import Order, measure
from mlpfusion.storage import private, results
from mlpfusion.workers import forking, interrupts, lifetime

if TYPE_CHECKING:
    from mlpfusion.records.profile import HostClocks
    from mlpfusion.stages.profile.run import Progress

CPUS: Final = "MLPFUSION_WORKER_CPUS"  # those of this worker, separated by commas


def turns_of(host_clocks: HostClocks, waits: Path) -> dict[str, str]:
    """What the environment of a worker says of the turns in which races of this host take their host clocks.

    `waits` is the file of its own in which it notes how long it has waited.
    """
    if host_clocks == "shared":
        return {}
    lock = Path(tempfile.gettempdir()) / f"mlpfusion-host-clocks-{os.getuid()}.lock"
    return {turns.LOCK: str(lock), turns.WAITS: str(waits)}


def main() -> int:
    """Measure what comes on stdin until nothing more does."""
    lifetime.obey()
    parent = os.environ.pop(lifetime.PARENT, None)
    lifetime.die_with_parent(None if parent is None else int(parent))
    cpus = os.environ.pop(CPUS, "")
    if cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(each) for each in cpus.split(",")})
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer

    def say(kind: str, text: str = "") -> None:
        answers.write(json.dumps([kind, text]) + "\n")
        answers.flush()

    try:
        with interrupts.stoppable(), forking.kept():
            devices.detect(sys.argv[1])
            say("ready")
            for line in sys.stdin:
                order, answer = json.loads(line)
                say(*_done(msgspec.convert(order, Order), Path(answer), say))
    except (KeyboardInterrupt, BrokenPipeError):
        return 1
    return 0


def _done(order: Order, answer: Path, say: _Say) -> tuple[str, str]:
    def heard(event: Progress) -> None:
        say("step", f"{event.stage} {event.backend or ''}".rstrip())

    try:
        results.save(measure(order, heard), answer)
    except MlpfusionError as error:
        return "failed", private.text(str(error))
    except Exception as error:  # a driver that lost its card raises anything; the cell has the reason
        import traceback

        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {private.text(first_line(error))}"
    return "done", ""


if TYPE_CHECKING:
    from typing import Protocol

    class _Say(Protocol):
        def __call__(self, kind: str, text: str = "") -> None: ...


if __name__ == "__main__":
    interrupts.leave(main())
