"""Says by which name work of the driver is compared: what it writes to is not always known to the profiler."""

from __future__ import annotations

import re
from typing import Final

_FILL: Final = re.compile(r"Memset \([^)]*\)")


def compared(name: str) -> str:
    """`Memset` for a fill of any memory, else the name.

    The fills of one replayed CUDA graph were `Memset (Unknown)` in one process and `Memset (Device)` in the next (seen
    with torch 2.11 and CUDA 13.0).
    """
    return "Memset" if _FILL.fullmatch(name) else name
