"""A kernel of Triton whose reads and writes are known, and the ledger of a call."""

from __future__ import annotations

import triton
import triton.language as tl

from mlpfusion.traffic.recording import collect


@triton.jit
def halve(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at * 2, mask=at < n), mask=at < n)


def watched(call, **named):
    call()
    return collect.collect(call, named)
