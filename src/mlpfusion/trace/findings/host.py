"""Derives findings from a reading: an observation with its numbers, what it means, what to do."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.records.trace import Finding
from mlpfusion.trace.analysis.idling.idle import NO_EVENT
from mlpfusion.trace.calls.call import allocates, initialises, is_blocking_copy, is_sync
from mlpfusion.trace.findings.communication import of_communication, waits_for_communication
from mlpfusion.trace.findings.compilation import of_compilation
from mlpfusion.trace.findings.device import of_work
from mlpfusion.trace.findings.doubts import of_trace
from mlpfusion.trace.words import NAME, counted, shared, tallied

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.trace import HostEvent, Reading, Spread
    from mlpfusion.trace.findings.compilation import Asked

# A first call this much wider than the rest is no noise: steady calls of one trace differ by a few percent.
COLD: Final = 1.25
# The profiler makes host time up to 1.9 times as long as it is (seen on an H200), so the host limits a call for
# certain only when its traced time to issue the work is twice the device's.
INFLATION: Final = 2.0
# A device that idles less than this has work all the time, whatever the host takes.
NEVER_IDLE: Final = 0.05
# A device that idles for less than this part of the call while the host works is not kept waiting by it.
KEPT_WAITING: Final = 0.25
MOSTLY: Final = 0.5
# A call that spends more than this part on what a process does once is no steady call, and nothing limits it.
UNSTEADY: Final = 0.1
# A kernel's times within one trace agree within a few percent at fixed clocks; a fifth is another state of the card.
# Below 2 µs differences are the resolution of the time stamps and the card's scheduling.
VARIES: Final = 0.2
VARIES_US: Final = 2.0
_WIDEST: Final = 3
# A wait shorter than this, or than a tenth of the call, changes nothing that one would do.
WAIT_US: Final = 20.0
WAIT_SHARE: Final = 0.1


def findings(reading: Reading, *, asked: Asked | None = None) -> tuple[Finding, ...]:
    """All findings, those that concern most of a call first, each with its cost and share of the call.

    `asked` is what the traced code was meant to run under, if the caller knows it; else it is inferred from the trace.
    """
    found = [
        *of_trace(reading),
        *of_compilation(reading, asked),
        *of_communication(reading),
        *(finding for rule in _RULES for finding in rule(reading)),
        *of_work(reading),
    ]
    call = reading.call_us
    weighed = [msgspec.structs.replace(one, share=one.cost_us / call if call > 0 else 0.0) for one in found]
    return tuple(sorted(weighed, key=lambda one: -one.cost_us))


def _cold(reading: Reading) -> Iterable[Finding]:
    first = reading.first_call
    if first is None:
        return
    host, device = _over(first.host_us, first.rest_host_us), _over(first.kernel_us, first.rest_kernel_us)
    if max(host, device) >= COLD:
        longer = max(first.host_us - first.rest_host_us, first.kernel_us - first.rest_kernel_us)
        yield Finding(
            id="cold_start",
            seen=f"the first call took {first.host_us:.0f} µs on the host and {first.kernel_us:.0f} µs on the device, "
            f"the others {first.rest_host_us:.0f} and {first.rest_kernel_us:.0f} ({max(host, device):.1f} times)",
            means="it still loads kernels, fills caches or raises clocks, even after a warm-up",
            do="exclude it; medians barely change, but a mean would",
            cost_us=longer / reading.call.count,
        )


def _over(value: float, rest: float) -> float:
    return value / rest if rest > 0 else 1.0


def _allocations(reading: Reading) -> Iterable[Finding]:
    """Memory that is allocated or freed inside calls, which stops the host and often the device."""
    calls = [tally for tally in reading.apis if allocates(tally.name)]
    if reading.host_use is None or not calls or not reading.host_use.allocating_us:
        return
    yield Finding(
        id="malloc_in_call",
        seen=f"memory is allocated or freed inside calls for {reading.host_use.allocating_us:.0f} µs a call: "
        f"{tallied(calls)} in {counted(reading.call.count, 'call')}",
        means="the caching allocator has no block that fits, or is emptied; freeing also waits for the device",
        do="do not call empty_cache in the loop; warm up every shape; try "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or allocate once and reuse",
        cost_us=reading.host_use.allocating_us,
    )


def _initialisation(reading: Reading) -> Iterable[Finding]:
    """What a process does once, inside calls."""
    once = [tally for tally in reading.apis if initialises(tally.name, "api")]
    once += [tally for tally in reading.overhead if initialises(tally.name, "overhead")]
    if once:
        yield Finding(
            id="initialisation",
            seen=f"inside calls: {tallied(once)}",
            means="kernels were loaded, or contexts and graphs made, on first use inside a recorded call",
            do="run every shape once before recording",
            cost_us=sum(tally.total_us for tally in once) / reading.call.count,
        )


# ---- what limits a call ----------------------------------------------------------------------------------------------


def _times(ratio: float) -> str:
    """A ratio with enough digits to distinguish it from 1 and `INFLATION`, on which the conclusion depends."""
    texts = [f"{ratio:.{digits}f}" for digits in (1, 2, 3, 4)]
    told = [text for text in texts if all((float(text) == limit) == (ratio == limit) for limit in (1.0, INFLATION))]
    return told[0] if told else texts[-1]


def _bound(reading: Reading) -> Iterable[Finding]:
    """What limits the call: the host, which keeps the device waiting, or the device's work.

    Nothing is concluded of calls that lost events, hold initialisation or capture a graph, nor of those whose work was
    mostly launched before recording began.
    """
    host, use = reading.host_use, reading.device_use
    device = median(reading.analysis.kernel_us) if reading.analysis.kernel_us else 0.0
    if host is None or use is None or not device or reading.incomplete or reading.integrity.captured:
        return
    if host.initialising_us > UNSTEADY * use.length_us or use.orphans_us > use.own_us + use.others_us:
        return
    # The host's own way: to the last launch, and behind it for as long as the device has nothing to do.
    takes = max(0.0, host.issue_us + use.tail_us - host.allocating_us)
    late = max(0.0, use.working_us - host.allocating_us)
    seen = _host_and_device(reading, takes, device)
    idle = use.idle_us / use.length_us
    if idle < NEVER_IDLE or (takes < device and use.idle_us - use.launched_us < MOSTLY * use.length_us):
        ratio = f"; device/host {_times(device / takes)}x" if 0 < takes < device else ""
        yield Finding(
            id="gpu_bound",
            seen=seen + ratio,
            means="the device limits the call, the more so without the profiler, which slows only the host",
            do=_faster_device(reading),
            cost_us=max(device, use.length_us - use.idle_us),
        )
    elif takes >= INFLATION * device and late >= KEPT_WAITING * use.length_us:
        graphs = "fewer operators around the graph" if reading.graphs else "a CUDA graph (mode='reduce-overhead')"
        yield Finding(
            id="overhead_bound",
            seen=f"{seen}; host/device {_times(takes / device)}x; meanwhile the host {_meanwhile(reading)}",
            means="the host limits the call: the device waits for launches, even allowing for the profiler's cost",
            do=f"use a larger batch, {graphs} or fewer operators, not faster kernels",
            cost_us=late,
        )
    else:
        yield Finding(
            id="bound_unclear",
            seen=f"{seen}; host/device {_times(takes / device)}x",
            means=f"either may limit the call: the profiler inflates host time up to {INFLATION:g}x",
            do="time the call without the profiler, with and without synchronisation, and compare with the device time",
            cost_us=late,
        )


def _meanwhile(reading: Reading) -> str:
    """What the host did while the device idled, allocations apart, which are a finding of their own."""
    assert reading.device_use is not None, "checked by the caller"
    framed = reading.python is not None
    nothing = "no frame and no operator" if framed else "in no operator, Python mostly"
    did = tuple(
        msgspec.structs.replace(one, name=nothing) if one.name == NO_EVENT else one
        for one in reading.device_use.did
        if not allocates(one.name)
    )
    return f"{'was in' if framed else 'did'}: {shared(did)}"


def _host_and_device(reading: Reading, takes: float, device: float) -> str:
    host, use = reading.host_use, reading.device_use
    assert host is not None, "checked by the caller"
    assert use is not None, "checked by the caller"
    apart = [
        f"{host.waiting_us:.0f} µs of waits" if host.waiting_us else "",
        f"{host.allocating_us:.0f} µs of allocations" if host.allocating_us else "",
    ]
    without = " and ".join(text for text in apart if text)
    return (
        f"host: {takes:.0f} µs of work (under the profiler{', without ' + without if without else ''}); "
        f"device: {device:.0f} µs; the device idles {use.idle_us / use.length_us:.0%} of the call, "
        f"{use.working_us / use.length_us:.0%} while the host works"
    )


def _faster_device(reading: Reading) -> str:
    alone = waits_for_communication(reading)
    if alone is not None:
        return f"hide or shrink communication first: {alone}; faster kernels shorten none of it"
    if reading.graphs:
        return "make the kernels faster or move fewer bytes"
    return "make the kernels faster or move fewer bytes; a CUDA graph saves only idle time"


# ---- times that vary, waits ------------------------------------------------------------------------------------------


def _bounds(spread: Spread) -> tuple[float, float]:
    if spread.p20 is not None and spread.p80 is not None:
        return spread.p20, spread.p80
    return (spread.low, spread.high) if spread.n > 2 else (spread.median, spread.median)


def _varying(reading: Reading) -> Iterable[Finding]:
    """Kernels whose time differs between calls: how many, and the widest."""
    wide = []
    for kernel, spread in zip(reading.analysis.kernels, reading.kernel_spread, strict=False):
        low, high = _bounds(spread) if spread is not None else (0.0, 0.0)
        if spread is not None and high - low > max(VARIES_US, VARIES * spread.median):
            wide.append((high - low, kernel, spread))
    if not wide:
        return
    wide.sort(key=lambda one: -one[0])
    shown = []
    for _, kernel, spread in wide[:_WIDEST]:
        low, high = _bounds(spread)
        name = kernel.role if kernel.role != "other" else kernel.name[:NAME]
        shown.append(f"{name}: {low:.1f} to {high:.1f} µs around {spread.median:.1f}")
    yield Finding(
        id="kernel_varies",
        seen=f"{len(wide)} of {len(reading.analysis.kernels)} kernel times vary between calls, "
        f"{'the widest ' if len(wide) > _WIDEST else ''}{'; '.join(shown)}",
        means="clock, cache or background load changed; such a difference between two traces is not a result",
        do="record more calls, wait for a steady clock, and compare medians with their spread",
        cost_us=sum(width for width, *_ in wide),
    )


def _is_wait(event: HostEvent) -> bool:
    return event.category == "api" and (is_sync(event.name) or is_blocking_copy(event.name))


def _launched_at(reading: Reading) -> list[float]:
    return [event.start_us for event in reading.timeline if event.category == "api" and event.launches]


def _final_wait(reading: Reading) -> Iterable[Finding]:
    """A long synchronisation behind the last launch of the call."""
    last_launch = max(_launched_at(reading), default=0.0)
    waits = [event for event in reading.timeline if _is_wait(event) and event.start_us >= last_launch]
    host = median(reading.analysis.host_us) if reading.analysis.host_us else 0.0
    longest = max(waits, key=lambda event: event.duration_us, default=None)
    if longest and longest.duration_us >= max(WAIT_US, WAIT_SHARE * host):
        idle = reading.device_use.final_wait_us if reading.device_use else 0.0
        yield Finding(
            id="long_synchronise",
            seen=f"{longest.name} at the end of a call waits {longest.duration_us:.0f} of its {host:.0f} µs, "
            f"{idle:.0f} µs of it with an idle device",
            means="the host had issued everything and waited for the device: device time, not host cost",
            do="do not add it to kernel time; synchronise once after many calls",
            cost_us=idle,
        )


def _waits(reading: Reading) -> Iterable[Finding]:
    """Synchronisations between launches, which drain the device in the middle of a call, and launches that block."""
    launches = _launched_at(reading)
    last = max(launches, default=0.0)
    first = min(launches, default=0.0)
    waits = [event for event in reading.timeline if _is_wait(event) and first < event.start_us < last]
    idle = reading.device_use.waiting_us if reading.device_use else 0.0
    if waits:
        total = sum(event.duration_us for event in waits)
        yield Finding(
            id="wait_inside_call",
            seen=f"{counted(len(waits), 'synchronisation')} between the launches of a call, {total:.0f} µs in all, "
            f"{idle:.0f} µs of it with an idle device",
            means="the host waits for the device, then has to refill its queue: .item(), .cpu(), nonzero, a print",
            do="keep values on the device until the end of the call",
            cost_us=idle,
        )


_RULES: Final = (_cold, _allocations, _initialisation, _bound, _varying, _final_wait, _waits)
