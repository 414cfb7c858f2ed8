"""Measures background CPU load during the race; host-side times are unreliable when it is high."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

STAT: Final = Path("/proc/stat")
# With a share s of the CPUs at work, the chance is about s that the other thread of the core that calls is one of them.
# What that can cost: beside a second job of its kind, the host took 239 µs for a call of Liger's at 16 tokens, where it
# took 103 at 1 (bench/results/h200-choose-gemma-2b).
DISTURBING: Final = 0.1
# The kernel counts in hundredths of a second: below this a share of few CPUs would be its rounding.
LEAST_S: Final = 0.5


class Reading(NamedTuple):
    """Seconds since some start: of the clock, of work on all CPUs together, and of this process's part of that."""

    at: float
    worked: float
    mine: float
    cpus: int


def read(stat: Path = STAT) -> Reading | None:
    """What the kernel has counted so far, in a container for the whole machine too; None where it is not available."""
    if sys.platform != "linux":
        return None
    try:
        lines = stat.read_text(encoding="ascii").splitlines()
        total = next(line.split()[1:9] for line in lines if line.startswith("cpu "))
        # man 5 proc: user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in user's already.
        user, nice, system, _, _, irq, softirq, steal = map(int, total)
    except (OSError, ValueError, StopIteration):
        return None
    cpus = sum(line.startswith("cpu") and not line.startswith("cpu ") for line in lines)
    own = os.times()
    return Reading(
        at=time.monotonic(),
        worked=(user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK"),
        mine=own.user + own.system,
        cpus=cpus,
    )


def share(before: Reading | None, after: Reading | None) -> float | None:
    """The share of all CPUs' time, 0 to 1, that other programs took in between; None where unknown."""
    if before is None or after is None or before.cpus != after.cpus or not after.cpus:
        return None
    passed = after.at - before.at
    if passed < LEAST_S:
        return None
    all_of_it, mine = after.worked - before.worked, after.mine - before.mine
    if all_of_it < mine / 2:  # some sandboxes show a /proc/stat that stands still
        return None
    return min(max((all_of_it - mine) / (passed * after.cpus), 0.0), 1.0)
