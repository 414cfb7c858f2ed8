"""Reads traces of torch.profiler without torch: what a call ran, launched, and spent before its first launch.

Called as a function, the package is `mlpfusion.record`: `mlpfusion.trace(fn, *args)` records a trace to be read.
"""

import sys
from types import ModuleType
from typing import Any

from mlpfusion.trace.analysis.kernels import analyse
from mlpfusion.trace.analysis.sequence import analyse_work
from mlpfusion.trace.analysis.summary import read, read_all

__all__ = ["analyse", "analyse_work", "read", "read_all"]


class _Recording(ModuleType):
    """A module that records what it is called with."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        import mlpfusion  # torch is imported there, and only now

        recorder: Any = mlpfusion.record
        return recorder(*args, **options)


sys.modules[__name__].__class__ = _Recording
