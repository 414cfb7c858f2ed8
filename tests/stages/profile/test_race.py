"""Clocks put on a row, what bounds it, and what fails it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mlpfusion.device import Device
from mlpfusion.records.clocks import Samples
from mlpfusion.records.profile import Analysis, Launches, PreOps, Row, Traffic
from mlpfusion.stages.profile.race import after_the_race, before_the_race
from mlpfusion.workers.tasks import Raced

GPU = Device(kind="cuda", name="NVIDIA H200", runtime="cuda")
CPU = Device(kind="cpu", name="some CPU")
NOTHING = Launches(kernels=0, memcpys=0, memsets=0, runtime_launches={}, occupancy_queries=0, syncs=0)


def raced(backend="triton", *, invalid=None, no_graph=None, **clocks) -> Raced:
    rows = [
        Samples(backend=name, clock=clock, l2="cold", values=(value,) * 30)
        for name, factor in (("eager", 2.0), (backend, 1.0))
        for clock, value in ((clock, factor * us) for clock, us in {"idle_host_us": 40.0, **clocks}.items())
    ]
    return Raced(samples=tuple(rows), no_graph=no_graph or {}, invalid=invalid or {})


def row(device=GPU, minimum_bytes=10**6) -> Row:
    analysis = Analysis(
        calls=20, kernels=(), launches=NOTHING, pre_ops=PreOps(n=20), kernel_us=(90.0,) * 20, host_us=(70.0,) * 20
    )
    return Row(
        backend="triton",
        status="ok",
        clocks=before_the_race("triton", analysis, device),
        pre_ops=PreOps(n=20, host_us=70.0),
        traffic=Traffic(minimum_bytes=minimum_bytes),
    )


def test_before_the_race_only_the_kernel_clock_is_there():
    clocks = row().clocks
    assert clocks.kernel_us.median == 90.0
    assert clocks.kernel_us.l2 == "cold"
    assert set(clocks.reasons) == {"wall_us", "event_us", "graph_us"}


def test_the_race_fills_clocks_bound_and_inflation():
    done = after_the_race(row(), [raced(wall_us=150.0, host_us=50.0, event_us=110.0, graph_us=100.0)], GPU)
    assert done.status == "ok"
    assert done.clocks.graph_us.ratio_to_eager.median == 0.5
    assert (done.bound.by, done.bound.margin) == ("gpu", 2.0)
    assert (done.bound.n, done.bound.host_p20_us, done.bound.host_p80_us) == (30, 50.0, 50.0)
    assert done.pre_ops.profiler_inflation == pytest.approx(70 / 40)
    assert done.clocks.reasons == {}
    assert done.clocks.kernel_us.median == 90.0


def test_a_slow_host_bounds_the_call():
    done = after_the_race(row(), [raced(wall_us=450.0, host_us=400.0, event_us=410.0, graph_us=100.0)], GPU)
    assert (done.bound.by, done.bound.margin) == ("cpu", 4.0)


def test_what_others_took_of_the_host_is_kept():
    answer = raced(wall_us=150.0, host_us=50.0, event_us=110.0, graph_us=100.0)
    assert after_the_race(row(), [answer], GPU).clocks.neighbours is None
    assert after_the_race(row(), [replace(answer, neighbours=0.25)], GPU).clocks.neighbours == 0.25


def test_an_absent_graph_says_why():
    lost = raced(wall_us=1.0, host_us=1.0, event_us=1.0, no_graph={"triton": "capturing failed: x"})
    assert after_the_race(row(), [lost], GPU).clocks.reasons == {"graph_us": "capturing failed: x"}


def test_on_the_cpu_there_is_one_clock_and_no_bound():
    done = after_the_race(row(CPU), [raced(wall_us=9.0, host_us=9.0)], CPU)
    assert set(done.clocks.reasons) == {"event_us", "graph_us"}
    assert done.bound is None


def test_a_disturbed_window_fails_the_row_but_keeps_its_numbers():
    done = after_the_race(row(), [raced(wall_us=1e3, host_us=1.0, event_us=1e3, invalid={"triton": "recompiled"})], GPU)
    assert (done.status, done.reason) == ("failed", "recompiled")
    assert done.clocks.wall_us is not None


def test_faster_than_the_memory_is_a_fault():
    done = after_the_race(row(minimum_bytes=10**9), [raced(wall_us=100.0, host_us=1.0, event_us=100.0)], GPU)
    assert done.status == "failed"
    assert "10000 GB/s" in done.reason
    assert "4800 GB/s" in done.reason
    unknown = Device(kind="cuda", name="a card nobody knows", runtime="cuda")
    done = after_the_race(row(minimum_bytes=10**9), [raced(wall_us=100.0, host_us=1.0, event_us=100.0)], unknown)
    assert done.status == "ok"
