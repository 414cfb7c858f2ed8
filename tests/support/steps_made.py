"""Steps and traffic with sizes that are known, and a card whose rates are known."""

from __future__ import annotations

from mlpfusion.records.profile import Traffic
from mlpfusion.records.traffic import Ceilings, CopyRate, ProductRate, Step

L2 = 50 * 2**20
CARD = Ceilings(
    dtype="bfloat16",
    copies=(
        CopyRate(bytes=10**6, bytes_per_second=1e12, n=20),
        CopyRate(bytes=10**8, bytes_per_second=4e12, n=20),
    ),
    products=(
        ProductRate(m=8192, n=8192, k=8192, flops_per_second=8e14, samples=20),
        ProductRate(m=8192, n=3072, k=768, flops_per_second=7e14, samples=20),
    ),
)


def step(time_us, *, read=10**8, flops=None, **changes):
    return Step(op="k", source="triton", read_bytes=read, write_bytes=0, flops=flops, time_us=time_us, **changes)


def traffic(*steps, values=()):
    return Traffic(minimum_bytes=1, derived_bytes=1, round_trips=len(values), steps=steps, intermediates=values)
