"""Derives findings about communication at whose time nothing computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.records.trace import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.breakdown import Collective
    from mlpfusion.records.trace import Reading

# A device that spends this part of its busy time in communication alone waits for it: its kernels are not the limit.
WAITS: Final = 0.25
_SHOWN: Final = 3


def of_communication(reading: Reading) -> Iterable[Finding]:
    """Communication that nothing hides."""
    split = reading.breakdown.split if reading.breakdown else None
    if reading.breakdown is None or split is None or split.communication_us <= 0:
        return
    exposed = sorted((one for one in reading.breakdown.collectives if one.exposed_us), key=lambda one: -one.exposed_us)
    named = ", ".join(_named(one) for one in exposed[:_SHOWN])
    left = len(exposed) - _SHOWN
    talks = split.communication_us + split.both_us
    yield Finding(
        id="exposed_communication",
        seen=f"communication runs for {talks:.0f} of {split.length_us:.0f} µs of a call, "
        f"{split.communication_us:.0f} µs of it while nothing computes"
        + (f": {named}" if named else "")
        + (f" and {left} more" if left > 0 else ""),
        means="the device waits for other ranks or for the links between them; faster kernels shorten none of it",
        do="overlap it with compute (smaller buckets, prefetch, an earlier launch), or send fewer bytes; a rank that "
        "arrives late makes all others wait: compare the ranks",
        cost_us=split.communication_us,
    )


def waits_for_communication(reading: Reading) -> str | None:
    """How long the device only communicates, where that is much of the time in which it is busy; else None."""
    split = reading.breakdown.split if reading.breakdown else None
    if split is None:
        return None
    busy = split.length_us - split.idle_us
    if not busy or split.communication_us < WAITS * busy:
        return None
    return f"{split.communication_us:.0f} of {busy:.0f} µs of the device it runs alone"


def _named(one: Collective) -> str:
    rate = f", {one.bus_gb_s:.0f} GB/s of bus bandwidth" if one.bus_gb_s is not None else ""
    return f"{one.count}x {one.operation} {one.exposed_us:.0f} of {one.us:.0f} µs{rate}"
