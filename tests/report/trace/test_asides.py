"""report.trace.asides: what is seldom in a trace is said where it is."""

from __future__ import annotations

import msgspec
from support import pages
from support.pages import page

from mlpfusion.records.trace import Damage, Integrity, Reading, Region, StreamUse, Tally

replace = msgspec.structs.replace
eager = pages.eager  # a fixture


def test_what_is_seldom_is_said(eager: Reading) -> None:
    odd = replace(
        eager,
        pre_ops_reason="no operators were recorded",
        streams=(*eager.streams, StreamUse(device="0", stream="9", events=1, busy_us=3.0)),
        regions=tuple(Region(id=f"0/{n}", calls=10, first=10 * n, last=10 * n + 9) for n in (0, 1)),
        compiling=(Tally(name="entire_frame_compile", count=1, total_us=5e6, longest_us=5e6),),
        integrity=Integrity(events=9, damage=(Damage(offset=17, what="dropped", reason="no JSON"),)),
        notes=("a note",),
        gpu=None,
    )
    text = page(odd)
    for line in (
        "time before the first launch: not known: no operators were recorded",
        "compiled region 0/1: 10 calls, from number 10 to 19",
        "compiling, in calls: 1x entire_frame_compile (5000000 µs)",
        "damage at byte 17: dropped: no JSON",
        "note: a note",
        "device      a GPU that the trace does not name",
    ):
        assert line in text.splitlines()
    assert "\nStreams\n" in text
    assert "dynamo" not in text
