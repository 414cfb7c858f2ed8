"""Records a trace of a call with torch.profiler, never while a clock runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from mlpfusion.errors import MeasurementError
from mlpfusion.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The annotations that delimit a call, and the calls before them that are wider than the rest.
CALL: Final = "mlpfusion.call"
WARMUP: Final = "mlpfusion.warmup"
WARMUPS: Final = 3
# Calls that the profiler makes room for: one that it leaves alone, one that it watches without writing it down.
WAIT: Final = 1
WATCHED: Final = 1
_END: Final = 16  # bytes in which a whole trace has its last brace


def record(
    call: Callable[[], object], path: Path, *, calls: int, warmups: int, flush: Callable[[], None] | None
) -> None:
    """Write a Chrome trace of `calls` annotated calls to `path`.

    Each starts with an idle device; `flush` (on a GPU) evicts the L2 before it, outside the annotation.
    """
    activities = [ProfilerActivity.CPU]
    if flush is not None:
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, record_shapes=True) as profiler:
        for index in range(warmups + calls):
            if flush is not None:
                flush()
                torch.cuda.synchronize()
            with record_function(WARMUP if index < warmups else CALL):
                held = call()
            if flush is not None:
                torch.cuda.synchronize()
            del held
    export(profiler, path)


def record_scheduled(call: Callable[[], object], path: Path, *, calls: int, warmups: int = WARMUPS) -> None:
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
        schedule=schedule(wait=WAIT, warmup=WATCHED, active=calls, repeat=1),
        record_shapes=True,
    ) as profiler:
        for _ in range(WAIT + WATCHED + calls):
            if cuda:
                torch.cuda.synchronize()
            with record_function(CALL):
                held = call()
            if cuda:
                torch.cuda.synchronize()
            del held
            profiler.step()
    export(profiler, path)


def export(profiler: profile, path: Path) -> None:
    """Write what was recorded to `path`; the profiler itself says nothing where the disk refuses.

    Raises:
        MeasurementError: it is not there, or cut short.
    """
    profiler.export_chrome_trace(str(path))
    end = b""
    if path.exists():
        with path.open("rb") as written:
            written.seek(max(0, path.stat().st_size - _END))
            end = written.read()
    if not end.rstrip().endswith(b"}"):
        path.unlink(missing_ok=True)
        raise MeasurementError(
            f"its trace cannot be written: {files.refusal(path.parent) or 'the profiler wrote none'}"
        )
