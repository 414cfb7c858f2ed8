"""Launches of Triton's interpreter: the very bytes that each loads and stores."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from support.halved import halve, watched

from mlpfusion.records.traffic import Run


@triton.jit
def count(x, out, BLOCK: tl.constexpr):
    tl.atomic_add(out, tl.sum(tl.load(x + tl.arange(0, BLOCK))))


def test_the_interpreter_says_the_very_bytes():
    x, out = torch.randn(20), torch.zeros(10)
    (launch,) = watched(lambda: halve[(2,)](x, out, 10, BLOCK=8), x=x, out=out).launches
    assert (launch.op, launch.source, launch.unknown) == ("halve", "interpreter", None)
    assert launch.reads[0].runs == (Run(0, 4, 8, 10),)  # every second element, and none behind the mask
    assert launch.writes[0].runs == (Run(0, 40, 40, 1),)


def test_an_atomic_reads_and_writes():
    x, out = torch.randn(8), torch.zeros(1)
    (launch,) = watched(lambda: count[(1,)](x, out, BLOCK=8), x=x, out=out).launches
    assert {access.buffer for access in launch.writes} < {access.buffer for access in launch.reads}


def test_the_copies_of_the_interpreter_itself_do_not_count():
    x, out = torch.randn(20), torch.zeros(10)
    call = lambda: (halve[(2,)](x, out, 10, BLOCK=8), out + 1)[1]  # noqa: E731
    assert [launch.op for launch in watched(call, x=x).launches] == ["halve", "aten::add"]
