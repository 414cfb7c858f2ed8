"""The race on a CPU: order, bookkeeping, and that a sample times the call and nothing else."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
import torch
from support.tunings_made import (
    GPU,
)

from mlpfusion.device import Device
from mlpfusion.measure import clocks, turns
from mlpfusion.measure.clocks import WARMUP_CALLS, Contender, race

CPU = Device(kind="cpu", name="some CPU")


def run(names, rounds, seed=0, call=lambda name: None):
    log = []
    contenders = [Contender(name, lambda name=name: log.append(name) or call(name), None, "none") for name in names]
    at = []
    samples = race(contenders, CPU, rounds=rounds, seed=seed, before=at.append, after=lambda name: at.append(None))
    return log, at, samples


def test_every_round_samples_everybody_once_in_a_new_order():
    log, _, samples = run("abcd", 30)
    rounds = [log[i : i + 4] for i in range(4 * WARMUP_CALLS, len(log), 4)]
    assert all(sorted(one) == list("abcd") for one in rounds)
    assert len({tuple(one) for one in rounds}) > 5
    assert {(series.backend, series.clock) for series in samples} == {
        (name, clock) for name in "abcd" for clock in ("wall_us", "host_us", "idle_host_us")
    }
    assert all(len(series.values) == 30 for series in samples)


def test_a_seed_repeats_the_order():
    assert run("abc", 10, seed=1)[0] == run("abc", 10, seed=1)[0]
    assert run("abc", 10, seed=1)[0] != run("abc", 10, seed=2)[0]


def test_who_is_at_work_is_told_before_each_sample():
    log, at, _ = run("ab", 5)
    told = [name for name in at if name is not None]
    assert told == ["a", "b", *log[2 * WARMUP_CALLS :]]


def test_a_sample_is_the_time_of_the_call():
    _, _, samples = run("a", 5, call=lambda name: time.sleep(0.02))
    for series in samples:
        assert all(value >= 20_000 for value in series.values)
        assert series.l2 == "unknown"


@pytest.mark.parametrize("graph", [True, False])
def test_on_a_gpu_each_sample_finds_an_idle_device_and_a_cold_cache(monkeypatch, graph):
    """The order of what is queued, with a stand-in for the device: the flush is outside every time."""
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("event")

        def synchronize(self):
            log.append("synchronise")

        def elapsed_time(self, other):
            return 1.0

    monkeypatch.setattr(clocks, "L2Flush", lambda device: lambda: log.append("flush"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("synchronise"))
    monkeypatch.setattr(time, "perf_counter_ns", lambda: log.append("host") or len(log))
    gpu = Device(kind="cuda", name="a card", runtime="cuda")
    contender = Contender("a", lambda: log.append("call"), (lambda: log.append("replay")) if graph else None, None)
    samples = race([contender], gpu, rounds=1, seed=0, before=lambda name: None, after=lambda name: None)
    row = ["flush", "event", "host", "call", "host", "event"]
    replay = ["flush", "event", "host", "replay", "host", "event"]
    wall = ["flush", "synchronise", "host", "call", "host", "synchronise", "host"]
    warm_up = ["call"] * WARMUP_CALLS + ["synchronise"]
    assert log == [
        *warm_up,
        *wall,
        *(row * clocks.ROW + ["synchronise"]),
        *((replay * clocks.ROW + ["synchronise"]) if graph else []),
    ]
    assert {series.l2 for series in samples} == {"cold"}
    assert ("graph_us" in {series.clock for series in samples}) == graph


# ---- two workers of one host -----------------------------------------------------------------------------------------


def fake_device(monkeypatch):
    monkeypatch.setattr(clocks, "L2Flush", lambda device: lambda: None)
    monkeypatch.setattr(clocks, "_last_of_a_row", lambda call, flush: (call() and 1.0, 1.0))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def raced(names, calls, replays):
    """Race on a card for each of these workers at once, each in a thread; what failed in one of them."""
    failed = []

    def race_of(worker):
        contenders = [Contender(name, lambda: calls(worker), lambda: replays(worker), None) for name in "ab"]
        ignore = lambda name: None  # noqa: E731
        try:
            race(contenders, GPU, rounds=3, seed=0, before=ignore, after=ignore, turn=turns.taken)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=race_of, args=(name,)) for name in names]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return failed


def test_host_clocks_are_taken_by_one_worker_at_a_time(monkeypatch, tmp_path):
    fake_device(monkeypatch)
    monkeypatch.setenv(turns.LOCK, str(tmp_path / "lock"))
    log = []

    def call(worker):
        log.append(worker)
        time.sleep(0)  # lets the others go on
        return True

    assert raced("xyz", call, lambda worker: True) == []
    blocks = [worker for worker, _ in itertools.groupby(log)]
    assert sorted(blocks) == list("xyz")


def test_device_clocks_run_side_by_side_and_beside_anothers_host_clocks(monkeypatch, tmp_path):
    fake_device(monkeypatch)
    monkeypatch.setenv(turns.LOCK, str(tmp_path / "lock"))
    both, met = threading.Barrier(2), []
    other_began = threading.Event()
    first: list[str] = []

    def call(worker):
        first.append(worker)
        if worker != first[0]:
            other_began.set()
        return True

    def replay(worker):
        if worker == first[0]:
            assert other_began.wait(600), "the turn was kept during replays"
        if worker not in met:
            both.wait(600)  # broken, an error, if the other never replays meanwhile
            met.append(worker)
        return True

    assert raced("xy", call, replay) == []
    assert sorted(met) == ["x", "y"]


def test_replays_alone_are_sampled_in_new_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(clocks, "L2Flush", lambda device: "flush")
    monkeypatch.setattr(clocks, "_last_of_a_row", lambda replay, flush: (replay(flush), 0.0))
    contenders = [
        clocks.Contender(name, lambda: None, lambda flush, name=name: log.append(f"{name} {flush}") or 7.0, None)
        for name in "abc"
    ]
    found = clocks.race_replays(contenders, GPU, rounds=20, seed=0)
    rounds = [log[place : place + 3] for place in range(0, 60, 3)]
    assert all(sorted(one) == ["a flush", "b flush", "c flush"] for one in rounds)
    assert len(set(map(tuple, rounds))) > 3
    assert [(one.backend, one.clock, one.l2, one.values) for one in found] == [
        (name, "graph_us", "cold", (7.0,) * 20) for name in "abc"
    ]
