"""Measures the card's peak rates: traces of copies of several sizes and of large matrix products."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from mlpfusion.device import detect
from mlpfusion.measure import clocks, tracer
from mlpfusion.workers import tasks

if TYPE_CHECKING:
    from collections.abc import Callable

WARMUPS: Final = 3


def record(task: tasks.Ceilings) -> tasks.Done:
    """Write `copy-BYTES.trace.json` and `product-MxNxK.trace.json` for everything that the task names.

    A copy of BYTES reads half of them and writes half, with random data, from a cold L2; so do the products. The L2 is
    clean as well: what others left to be written back would make a ceiling too low.
    """
    here = detect(task.device)
    flush = clocks.L2Flush(here, clean=True) if here.kind == "cuda" else None
    dtype: torch.dtype = getattr(torch, task.dtype)
    folder = Path(task.folder)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=task.device).to(dtype)

    def trace(name: str, call: Callable[..., object], *operands: torch.Tensor, out: torch.Tensor) -> None:
        path = folder / f"{name}.trace.json"
        tracer.record(partial(call, *operands, out=out), path, calls=task.calls, warmups=WARMUPS, flush=flush)

    for size in task.copies:
        source = random(size // 2 // dtype.itemsize)
        trace(f"copy-{size}", torch.neg, source, out=torch.empty_like(source))
    for m, n, k in task.products:
        out = torch.empty(m, n, device=task.device, dtype=dtype)
        trace(f"product-{m}x{n}x{k}", torch.mm, random(m, k), random(n, k).t(), out=out)
    return tasks.Done()
