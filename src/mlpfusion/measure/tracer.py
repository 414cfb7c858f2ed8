"""Records a trace of one call with torch.profiler, never while a clock runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch.profiler import ProfilerActivity, profile, record_function

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The annotations that delimit a call, and the calls before them that are wider than the rest.
CALL: Final = "mlpfusion.call"
WARMUP: Final = "mlpfusion.warmup"


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
    profiler.export_chrome_trace(str(path))
