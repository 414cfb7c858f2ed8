"""Lets one race of a host take its host clocks at a time, where several workers have cards of it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# The file that is locked meanwhile; set for the workers of a study, absent in a profile that runs alone.
LOCK: Final = "MLPFUSION_HOST_CLOCKS"
# The file with the waits of one worker: the times, in s, at which each began and ended.
WAITS: Final = "MLPFUSION_HOST_CLOCK_WAITS"


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
        _note()
        fcntl.flock(held, fcntl.LOCK_EX)
        _note()
        yield
    finally:
        os.close(held)


def waited(path: str | os.PathLike[str] | None = None) -> float:
    """Seconds that races have waited so far, by the file of a worker, or of this one: for no time limit to count."""
    times = _times(path)
    if len(times) % 2:  # one waits now; the clock is the same in all processes of a host
        times.append(time.monotonic())
    return sum(times[1::2]) - sum(times[::2])


def settle() -> None:
    """End a wait whose process has ended before its turn came."""
    if len(_times(None)) % 2:
        _note()


def _note() -> None:
    path = os.environ.get(WAITS)
    if path is not None:
        with open(path, "a", encoding="ascii") as file:
            file.write(f"{time.monotonic()}\n")


def _times(path: str | os.PathLike[str] | None) -> list[float]:
    path = path if path is not None else os.environ.get(WAITS)
    if path is None or not os.path.exists(path):
        return []
    return [float(line) for line in Path(path).read_text(encoding="ascii").split()]
