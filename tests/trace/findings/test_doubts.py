"""Findings about the trace itself: lost events, work without a launch, the profiler's own pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.findings_made import every, said
from support.timeline import GEMM

if TYPE_CHECKING:
    from pathlib import Path


def test_orphans_are_said(tmp_path: Path) -> None:
    made = every().device(GEMM, 500, 5, 999)
    assert said(made, tmp_path)["orphan_events"].seen.startswith("1 device event without a launch")
    assert "orphan_events" not in said(every(), tmp_path)


def test_a_kernel_before_its_launch_is_said(tmp_path: Path) -> None:
    made = every(each=lambda made, start, index: made.launch(GEMM, start + 80, start + 79, 2))
    assert "5 device events that start before their launch" in said(made, tmp_path)["orphan_events"].seen


def test_lost_events_are_said(tmp_path: Path) -> None:
    made = every().api("cudaLaunchKernel", 1080, correlation=999)
    found = said(made, tmp_path)
    assert found["missing_events"].seen == (
        "1 of 5 calls lost events and are left out: mlpfusion.call (number 1) has 1 launch without device event"
    )
    assert found["missing_events"].share == pytest.approx(1 / 5)
    assert "missing_events" not in said(every(), tmp_path)


def test_where_every_call_lost_events_nothing_is_concluded(tmp_path: Path) -> None:
    made = every(each=lambda made, start, index: made.api("cudaLaunchKernel", start + 80, correlation=900 + index))
    found = said(made, tmp_path)
    assert found["missing_events"].seen == "5 launches inside calls without device event"
    assert not {"gpu_bound", "overhead_bound", "bound_unclear"} & set(found)


@pytest.mark.parametrize(
    ("event", "expected"),
    [("Activity Buffer Request", "profiler_buffer"), ("Buffer Flush", "profiler_buffer"),
     ("Lazy Function Loading", "initialisation")],
)  # fmt: skip
def test_the_profilers_own_pauses_are_said(tmp_path: Path, event: str, expected: str) -> None:
    inside = every().add("overhead", event, 2050, 30, tid=0)
    assert said(inside, tmp_path)[expected].seen == f"inside calls: 1x {event}, 30 µs"
    outside = every().add("overhead", event, 1500, 30, tid=0)
    assert expected not in said(outside, tmp_path)
