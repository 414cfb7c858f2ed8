"""Ends a worker with its parent and on SIGTERM, whatever signals it inherited as ignored or blocked."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

# The number of the process that a worker belongs to, where that is its parent.
PARENT: Final = "MLPFUSION_WORKER_OF"
_PR_SET_PDEATHSIG: Final = 1  # from linux/prctl.h


def obey() -> None:
    """End on SIGTERM, and learn how children ended; what this process starts inherits both."""
    for number in (signal.SIGTERM, signal.SIGCHLD):  # with SIGCHLD ignored nobody hears how a process ended
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGCHLD))


def die_with_parent(parent: int | None = None) -> None:
    """On Linux, have the kernel end this process when its parent ends without saying so.

    `parent` is the parent's number: if that has ended already, this process ends now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
