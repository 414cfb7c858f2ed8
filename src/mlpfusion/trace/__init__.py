"""Reads traces of torch.profiler without torch: what a call ran, launched, and spent before its first launch."""

from mlpfusion.trace.analysis import analyse
from mlpfusion.trace.reading import read, read_all

__all__ = ["analyse", "read", "read_all"]
