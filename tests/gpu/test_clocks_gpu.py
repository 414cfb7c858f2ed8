"""The clocks on a GPU: cold caches, graphs, and samples of known length."""

from __future__ import annotations

import statistics

import pytest
import torch
from support import workspaces

from mlpfusion.device import detect
from mlpfusion.measure.clocks import Contender, L2Flush, _last_of_a_row, capture, race


def run(*contenders, rounds=30):
    found = race(contenders, detect(), rounds=rounds, seed=0, before=lambda name: None, after=lambda name: None)
    return {(series.backend, series.clock): statistics.median(series.values) for series in found}


def test_the_flush_is_larger_than_the_cache():
    here = detect()
    assert L2Flush(here).size_bytes >= 2 * here.l2_bytes


def test_nothing_takes_almost_no_time():
    found = run(Contender("nothing", lambda: None, None, "none"))
    assert found["nothing", "event_us"] < 10
    assert found["nothing", "host_us"] < 10


def test_a_cold_read_is_slower_than_a_warm_one():
    x = torch.empty(24 * 2**20, dtype=torch.uint8, device="cuda")  # fits into the L2 of every data-centre card
    replay = capture("sum", x.view(torch.int64).sum).replay
    flush = L2Flush(detect())

    def spin():  # as long as the flush, and leaves the cache alone
        torch.cuda._sleep(100_000)

    cold, warm = (statistics.median(_last_of_a_row(replay, before)[0] for _ in range(30)) for before in (flush, spin))
    assert cold > 1.2 * warm


def test_a_clean_flush_leaves_nothing_to_be_written_back():
    x = torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda")
    replay = capture("sum", x.view(torch.int64).sum).replay
    dirty, clean = (
        statistics.median(_last_of_a_row(replay, L2Flush(detect(), clean=clean))[0] for _ in range(30))
        for clean in (False, True)
    )
    assert dirty > 1.05 * clean


def test_what_a_capture_holds_has_no_graph_of_autograd():
    x = torch.ones(64, 64, device="cuda", requires_grad=True)

    def step():
        y = x @ x
        return y, *torch.autograd.grad(y, (x,), torch.ones_like(y))

    for name in ("once", "again"):
        found = capture(name, step)
        assert found.no_graph_reason is None
        assert [one.grad_fn for one in found.replay()] == [None, None]
        step()


def test_a_graph_of_autograd_that_waits_for_the_collector_is_no_hindrance():
    x = torch.ones(64, 64, device="cuda", requires_grad=True)

    def step():
        y = x @ x
        return y, *torch.autograd.grad(y, (x,), torch.ones_like(y))

    circle = [step()]
    circle.append(circle)
    del circle
    assert capture("step", step).no_graph_reason is None


def test_a_busy_device_is_timed_and_a_busy_host_is_told_apart():
    cycles = 2_000_000
    found = run(capture("spin", lambda: torch.cuda._sleep(cycles)))
    # About 1 ms at 1.4 to 2 GHz, and issuing it takes microseconds.
    assert 700 < found["spin", "event_us"] < 3000
    assert found["spin", "graph_us"] == pytest.approx(found["spin", "event_us"], rel=0.1)
    assert found["spin", "host_us"] < 200
    assert found["spin", "wall_us"] > found["spin", "idle_host_us"]


def test_what_cannot_be_captured_says_why_and_leaves_the_device_usable():
    x = torch.ones(8, device="cuda")
    found = capture("item", lambda: x.sum().item())
    assert found.replay is None
    assert "capturing a CUDA graph failed" in found.no_graph_reason
    assert "previous error" not in found.no_graph_reason  # what ending the capture says
    assert x.sum().item() == 8
    assert torch.randn(8, device="cuda").isfinite().all()
    assert capture("sum", x.sum).replay is not None


@pytest.mark.parametrize("shape", workspaces.SPLIT)
def test_a_graph_keeps_its_workspace_when_another_ends_or_all_are_cleared(shape):
    m, k, n = shape
    x, w = (torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in ((m, k), (k, n)))
    replay = capture("product", lambda: x @ w).replay
    expected = replay().clone()
    workspaces.another_ends(lambda: capture("another", lambda: x @ w))
    workspaces.untouched(replay, expected)
    workspaces.cleared()
    workspaces.untouched(replay, expected)
    assert torch.equal(x @ w, capture("after", lambda: x @ w).replay())
