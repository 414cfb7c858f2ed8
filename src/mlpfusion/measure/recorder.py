"""Records a trace of any callable with torch.profiler: wait 1, warm up 1, record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from mlpfusion.measure.tracer import CALL, export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WARMUPS: Final = 3
# Calls that the profiler makes room for: one that it leaves alone, one that it watches without writing it down.
WAIT: Final = 1
WARMUP: Final = 1


def record(call: Callable[[], object], path: Path, *, calls: int, warmups: int = WARMUPS) -> None:
    """Write a Chrome trace of exactly `calls` annotated calls to `path`, after `warmups` calls without a profiler.

    Each call starts with an idle GPU where there is one, and keeps its result until the GPU is done with it. What
    `call` raises is raised, and nothing is written.
    """
    cuda = torch.cuda.is_available()
    for _ in range(warmups):
        call()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(
        activities=activities,
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=calls, repeat=1),
        record_shapes=True,
    ) as profiler:
        for _ in range(WAIT + WARMUP + calls):
            if cuda:
                torch.cuda.synchronize()
            with record_function(CALL):
                held = call()
            if cuda:
                torch.cuda.synchronize()
            del held
            profiler.step()
    export(profiler, path)
