"""Compares each launch's time with the card's measured copy and matrix rates."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.records.traffic import Ceilings, CopyRate, ProductRate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlpfusion.records.profile import Traffic
    from mlpfusion.records.traffic import Step
    from mlpfusion.spec import Dtype, Workload

# Bytes that a copy reads and writes together: from what a launch alone takes long for to far beyond any cache.
COPIES: Final = (2**20, 2**22, 2**24, 2**26, 2**28, 2**30)
# Beyond this factor over a ceiling a rate is none that noise explains.
NOISE: Final = 1.05


def products(workload: Workload) -> tuple[tuple[int, int, int], ...]:
    """M, N, K of the matrix products whose rate is the ceiling: a large square one, and those of the MLP itself."""
    m, d, h = workload.tokens, workload.spec.hidden_size, workload.spec.intermediate_size
    return tuple(dict.fromkeys(((8192, 8192, 8192), (m, h, d), (m, 2 * h, d), (m, d, h))))


def ceilings(dtype: Dtype, times_us: Mapping[str, Sequence[float]]) -> Ceilings:
    """The rates that traces of `copy-BYTES` and `product-MxNxK` show, given the kernel time of each of their calls."""
    copies, rates = [], []
    for name, times in times_us.items():
        kind, _, what = name.partition("-")
        seconds = median(times) * 1e-6
        if kind == "copy":
            copies.append(CopyRate(bytes=int(what), bytes_per_second=int(what) / seconds, n=len(times)))
        else:
            m, n, k = (int(side) for side in what.split("x"))
            rates.append(ProductRate(m=m, n=n, k=k, flops_per_second=2 * m * n * k / seconds, samples=len(times)))
    return Ceilings(dtype=dtype, copies=tuple(sorted(copies, key=lambda one: one.bytes)), products=tuple(rates))


def copy_rate(found: Ceilings, size: int) -> float:
    """Bytes per second of a copy that moves `size` bytes: between two measured ones by the logarithm of the size."""
    copies = found.copies
    if size <= copies[0].bytes:
        return copies[0].bytes_per_second
    for low, high in pairwise(copies):
        if size <= high.bytes:
            share = math.log(size / low.bytes) / math.log(high.bytes / low.bytes)
            return low.bytes_per_second * math.pow(high.bytes_per_second / low.bytes_per_second, share)
    return copies[-1].bytes_per_second


def product_rate(found: Ceilings) -> float:
    """Operations per second of the fastest matrix product that was measured."""
    return max(one.flops_per_second for one in found.products)


def limited(step: Step, found: Ceilings, l2_bytes: int | None, traffic: Traffic) -> Step:
    """The step with the shortest time that the ceilings allow, what sets it, and a word on a time that is shorter."""
    memory = step.bytes / copy_rate(found, step.bytes) if step.bytes else 0.0
    compute = 0.0 if step.flops is None else step.flops / product_rate(found)
    limit_us = max(memory, compute) * 1e6
    if not limit_us:
        return step
    above = None
    if step.time_us is not None and step.time_us * NOISE < limit_us:
        above = _why_above(step, memory > compute, l2_bytes, traffic)
    return msgspec.structs.replace(
        step, limit_us=limit_us, bound="memory" if memory > compute else "compute", above=above
    )


def _why_above(step: Step, memory: bool, l2_bytes: int | None, traffic: Traffic) -> str:
    """Bytes that came out of the L2 never crossed the memory's bus; anything else above a ceiling is a fault."""
    if not memory:
        return "measurement fault: faster than any matrix product measured on this card"
    measured = (step.measured_read_bytes, step.measured_write_bytes)
    if measured[0] is not None and measured[1] is not None and measured[0] + measured[1] < step.bytes / NOISE:
        return f"the L2: only {(measured[0] + measured[1]) / 1e6:.3g} MB crossed the memory's bus"
    just_written = [traffic.intermediates[value].bytes for value in step.values_read]
    if measured[0] is None and l2_bytes is not None and any(size <= 2 * l2_bytes for size in just_written):
        least = min(just_written) / 1e6
        return f"the L2 ({l2_bytes / 2**20:.0f} MiB) may hold what a kernel before wrote ({least:.3g} MB)"
    return "measurement fault: faster than a copy of as many bytes on this card"


def weighed(traffic: Traffic, found: Ceilings, l2_bytes: int | None) -> Traffic:
    """The traffic with a limit on every step and on the call, whose launches follow one another."""
    steps = tuple(limited(step, found, l2_bytes, traffic) for step in traffic.steps)
    limits = [step.limit_us for step in steps if step.limit_us is not None]
    return msgspec.structs.replace(traffic, steps=steps, limit_us=sum(limits) if limits else None)


def faults(traffic: Traffic) -> tuple[str, ...]:
    """One line for each step whose time cannot be right."""
    return tuple(
        f"{step.role or step.op}: {step.above} ({step.time_us:.3g} µs, at least {step.limit_us:.3g})"
        for step in traffic.steps
        if step.above is not None and step.above.startswith("measurement fault")
    )
