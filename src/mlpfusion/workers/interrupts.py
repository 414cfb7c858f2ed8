"""Turns signals that would end the program into an interrupt, and leaves ignored ones ignored."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does: workers are stopped, finished rows kept.

    A signal that is ignored, as `nohup` and shells have it for what runs in the background, stays ignored, and one for
    which the program has its own handler stays the program's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers belong to the main thread
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    ours = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def end_quietly() -> None:
    """From here on Ctrl-C ends this process without a traceback, unless it is ignored."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def leave(code: int) -> NoReturn:
    """End this process now: taking down what was imported takes a second, several on a busy machine."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none is there, or nobody reads it
            stream.flush()
    os._exit(code)
