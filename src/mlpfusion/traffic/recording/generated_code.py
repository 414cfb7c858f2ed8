"""Observes what torch.compile made in this process: how many graphs, and which generated module is running."""

from __future__ import annotations

import sys
from typing import Final

# Where PyTorch's loader puts the modules that Inductor wrote.
PREFIX: Final = "torch._inductor.runtime.compile_tasks."


def running() -> str | None:
    """The name of the generated module whose code is being run, without what all such names begin with; None outside.

    That an operator was called by generated code only the stack tells.
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(PREFIX):
            return name.removeprefix(PREFIX)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def graphs_compiled() -> int:
    """How many graphs torch.compile has made in this process."""
    if "torch._dynamo.utils" not in sys.modules:
        return 0
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
