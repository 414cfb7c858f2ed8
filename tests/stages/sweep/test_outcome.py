"""What a finished cell says in short."""

from __future__ import annotations

from msgspec.structs import replace
from support.choices_made import around, profile, row

from mlpfusion.device import Device
from mlpfusion.records.clocks import Samples
from mlpfusion.stages.sweep.outcome import clock_of, outcome
from mlpfusion.stats import summarise


def clocked(name, middle, base=None):
    def samples(which, value):
        return Samples(backend=which, clock="wall_us", l2="unknown", values=around(value))

    clock = summarise(samples(name, middle), None if base is None else samples("eager", base))
    made = row(name, around(middle))
    return replace(made, clocks=replace(made.clocks, wall_us=clock))


def test_winner_ties_ratios_and_failures():
    found = outcome(
        profile(
            clocked("eager", 100, 100),
            clocked("packed", 50, 100),
            clocked("fused", 50, 100),
            row("liger", status="failed", reason="it crashed"),
            row("quack", reason="not installed"),
        )
    )
    assert (found.clock, found.winner, found.tied) == ("wall_us", "packed", ("fused",))
    assert found.speeds["packed"].median == 0.5
    assert list(found.speeds) == ["eager", "packed", "fused"]
    assert found.failed == {"liger": "it crashed"}


def test_without_a_time_there_is_no_winner():
    found = outcome(profile(row("eager", status="failed", reason="out of memory")))
    assert (found.winner, found.speeds, found.failed) == (None, {}, {"eager": "out of memory"})


def test_a_gpu_goes_by_events():
    found = profile(row("eager"))
    assert clock_of(found) == "wall_us"
    assert clock_of(replace(found, device=Device(kind="cuda", name="NVIDIA H200"))) == "event_us"
