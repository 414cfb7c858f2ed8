"""Lets one race of a host take its clocks at a time, where several workers have cards of it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# The file that is locked meanwhile; set for the workers of a study, absent in a profile that runs alone.
LOCK: Final = "MLPFUSION_HOST_CLOCKS"


@contextlib.contextmanager
def taken() -> Iterator[None]:
    """Wait for the turn of this process and keep it; nothing without a lock. It ends with the process as well."""
    path = os.environ.get(LOCK)
    if path is None:
        yield
        return
    import fcntl

    held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
