"""The worker's probes of speed: trace a target, race it against baselines, return Inductor's code."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from mlpfusion.device import describe
from mlpfusion.measure import clocks, tracer
from mlpfusion.stages.validate.layouts import ends
from mlpfusion.stages.validate.worker.author_probes import renewed
from mlpfusion.stages.validate.worker.probes import bind_once
from mlpfusion.stages.validate.worker.targets import loader

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.probes import Probe, Run

WARMUPS: Final = 3


def traced(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """The device kernels of one call in order, from a trace of `calls` calls: name, median µs, registers, bytes."""
    run.pins.pin(None)  # the autotuner's own choice
    bound = bind_once(run, given)
    path = Path(options["trace"])

    def call() -> object:
        with torch.no_grad():
            return bound()

    flush = clocks.L2Flush(describe(run.device)) if run.device.type == "cuda" else None
    tracer.record(call, path, calls=options["calls"], warmups=WARMUPS, flush=flush)
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    windows = [(each["ts"], each["ts"] + each["dur"]) for each in events if _is_call(each)]
    windows = sorted({window for window in windows if window[1] > window[0]})
    launched = {
        each["args"]["correlation"]: each["ts"]
        for each in events
        if each.get("cat") in {"cuda_runtime", "cuda_driver"} and "correlation" in each.get("args", {})
    }
    kernels = sorted((each for each in events if each.get("cat") == "kernel"), key=lambda each: each["ts"])
    by_call = [
        [each for each in kernels if start <= launched.get(each["args"].get("correlation"), -1.0) <= end]
        for start, end in windows
    ]
    full = [each for each in by_call if [one["name"] for one in each] == [one["name"] for one in by_call[0]]]
    found = [
        {
            "name": first["name"],
            "time_us": statistics.median(each[index]["dur"] for each in full),
            "registers": first["args"].get("registers per thread"),
            "shared_bytes": first["args"].get("shared memory"),
        }
        for index, first in enumerate(by_call[0] if by_call else [])
    ]
    run.pins.pin(0)
    return {}, {"kernels": found, "calls": len(full)}


def _is_call(event: dict[str, Any]) -> bool:
    """The annotation as the host made it; the trace holds its shadow on the device too."""
    return event.get("name") == tracer.CALL and event.get("cat") == "user_annotation"


class _Made:
    """The last result of a contender, and how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self.last = torch.empty(0)

    def took(self, y: Tensor) -> Tensor:
        """The same result, counted."""
        self.count += 1
        self.last = y
        return y


def raced(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """Samples of every clock of the target ("target") and of each baseline, in interleaved rounds; GPU only.

    The ends of the target's last timed result (`timed`), and of one on `other:NAME` at the same addresses afterwards
    (`fresh`). Facts: `calls`, how many calls of it there were.
    """
    here = describe(run.device)
    run.pins.pin(None)
    bound = bind_once(run, given)
    made = _Made()

    def step(bound: loader.Bound, made: _Made) -> Callable[[], object]:
        def call() -> object:
            with torch.no_grad():
                return made.took(bound())

        for _ in range(WARMUPS):
            call()
        run.synchronize()
        return call

    contenders = [clocks.capture("target", step(bound, made))]
    for name in options["peers"]:
        peer = run._replace(target=loader.load(name, options["activation"], here))
        contenders.append(clocks.capture(name, step(bind_once(peer, given), _Made())))

    def ignore(name: str) -> None:
        del name

    samples = clocks.race(contenders, here, rounds=options["rounds"], seed=options["seed"], before=ignore, after=ignore)
    run.synchronize()
    results = {"timed": ends(made.last), "fresh": ends(renewed(run, bound, given))}
    run.pins.pin(0)
    return results, {
        "calls": made.count,
        "samples": [[each.backend, each.clock, list(each.values)] for each in samples],
        "no_graph": {each.name: each.no_graph_reason for each in contenders if each.no_graph_reason},
    }


def generated(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y of a compiled target without gradients, and the source that Inductor generated for it."""
    try:
        from torch._inductor.utils import run_and_get_code
    except ImportError as error:
        raise RuntimeError(f"this PyTorch does not show Inductor's code: {error}") from error
    torch._dynamo.reset()
    bound = bind_once(run, given)

    def call(*arguments: Any) -> Any:
        with torch.no_grad():
            return bound.function(*arguments)

    y, sources = run_and_get_code(call, *bound.arguments)
    run.synchronize()
    return {"y": y}, {"sources": list(sources)}


SPEED_PROBES: Final[dict[str, Probe]] = {"traced": traced, "raced": raced, "generated": generated}
