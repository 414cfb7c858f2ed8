"""Starts a command with signals as a terminal, `nohup` or a thread that blocks them leaves them, whatever we inherited.

`python signal_world.py WORLD SIGNAL,SIGNAL COMMAND...`: every signal at its default and unblocked, but those named
are ignored, blocked or both in the worlds of these names.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

WORLDS = ("default", "ignored", "blocked", "both")


def command(world: str, names: str, *rest: str) -> list[str]:
    """The command line that runs `rest` in such a world."""
    return [sys.executable, "-S", __file__, world, names, *rest]


def has(process: int, world: str, number: int) -> bool:
    """Whether a process ignores or blocks a signal now."""
    field = {"ignored": "SigIgn", "blocked": "SigBlk"}[world]
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        name, _, mask = line.partition(":")
        if name == field:
            return bool(int(mask, 16) >> (number - 1) & 1)
    raise AssertionError(f"the kernel says nothing of {field}")


def main() -> None:
    world, names, *rest = sys.argv[1:]
    assert world in WORLDS
    numbers = {signal.Signals[name] for name in names.split(",")}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        ignored = world in {"ignored", "both"} and number in numbers
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, numbers if world in {"blocked", "both"} else set())
    os.execvp(rest[0], rest)


if __name__ == "__main__":
    main()
