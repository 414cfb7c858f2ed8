"""What is said of times that were taken while other programs kept the host busy."""

from __future__ import annotations

from typing import Final

# With a share s of the CPUs at work, the chance is about s that the other thread of the core that calls is one of them.
# What that can cost: beside a second job of its kind, the host took 239 µs for a call of Liger's at 16 tokens, where it
# took 103 at 1 (bench/results/h200-choose-gemma-2b).
DISTURBING: Final = 0.1


def disturbed(share: float | None) -> str | None:
    """The sentence, or None where others took less than `DISTURBING` of the host, or it is not known what they took."""
    if share is None or share < DISTURBING:
        return None
    return (
        f"other programs took {share:.0%} of the host's CPU time during the race: what the host takes, and calls that "
        "it bounds, may be too long"
    )
