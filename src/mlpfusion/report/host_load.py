"""Reports when background load makes host-side times unreliable."""

from __future__ import annotations

from mlpfusion.measure.host_load import DISTURBING


def is_disturbing(share: float | None) -> bool:
    """Whether a share of the host's CPU time, 0 to 1 or unknown, is known to be enough to lengthen host-side times."""
    return share is not None and share >= DISTURBING


def disturbed(share: float | None) -> str | None:
    """The sentence, or None for a load below `DISTURBING` or an unknown one."""
    if share is None or not is_disturbing(share):
        return None
    return f"background load was {share:.0%} of the CPU during the race; host_us and CPU-bound rows may be inflated"
