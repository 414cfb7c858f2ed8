"""Records a trace of one call with torch.profiler, never while a clock runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from mlpfusion.errors import MeasurementError
from mlpfusion.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The annotations that delimit a call, and the calls before them that are wider than the rest.
CALL: Final = "mlpfusion.call"
WARMUP: Final = "mlpfusion.warmup"
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
