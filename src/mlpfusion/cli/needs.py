"""Lists the verbs that run with `mlpfusion-read` alone, and names what the others need installed."""

from __future__ import annotations

from importlib import util
from typing import Final

from mlpfusion.errors import UsageError

# What `mlpfusion-read` alone runs. Every other verb needs PyTorch and the modules that `mlpfusion` adds.
READERS: Final = (
    *("read", "diff", "explain", "open", "scrub"),  # traces
    *("table", "compare", "predict", "plot", "report", "cite", "reproduce", "merge"),  # results
)


def check_installed(verb: str) -> None:
    """Raise a `UsageError` that says what to install if a verb cannot run here."""
    absent = [name for name in ("torch", "mlpfusion.module") if verb not in READERS and util.find_spec(name) is None]
    if absent:
        raise UsageError(f"`mlpfusion {verb}` needs {absent[0]}, which is not installed: pip install mlpfusion")
