"""What a swap costs or gains: its time and kernels, and each reason why there is no figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.plain_mlp import Plain
from torch import nn

from mlpfusion.device import Device
from mlpfusion.models.swap import Handle, swap
from mlpfusion.records.clocks import Samples
from mlpfusion.stages.prove import cost

if TYPE_CHECKING:
    from collections.abc import Iterator

CPU = Device(kind="cpu", name="a CPU")
INTERPRETED = Device(kind="cpu", name="a CPU", interpreted=True)
TIMES_US = {"original": 10.0, "swapped": 8.0, "without": 6.0}


@pytest.fixture
def handle() -> Iterator[Handle]:
    torch.manual_seed(0)
    with swap(nn.Sequential(Plain(), nn.LayerNorm(32)), "eager") as made:
        yield made


def test_each_state_is_timed_as_itself(handle: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 32)
    seen: dict[str, torch.Tensor] = {}

    def race(contenders: Any, device: Device, *, before: Any, after: Any, **_: Any) -> list[Samples]:
        made = []
        for one in contenders:
            before(one.name)
            seen[one.name] = one.call()
            after(one.name)
            # A second clock, on which all are alike, must not be the one that is taken.
            for clock, time in (("wall_us", TIMES_US[one.name]), ("host_us", 1.0)):
                made.append(Samples(backend=one.name, clock=clock, l2="unknown", values=(time,) * 30))  # type: ignore[arg-type]
        return made

    monkeypatch.setattr(cost.clocks, "race", race)
    found = cost.speed(handle, lambda: handle.model[0](x), CPU, rounds=30, seed=0, is_emulated=False)
    assert (found.original.median, found.swapped.median, found.without.median) == (10.0, 8.0, 6.0)
    assert found.ratio is not None
    assert found.share is not None
    assert found.ratio.median == pytest.approx(0.8)
    assert (found.share.low, found.share.median, found.share.high) == pytest.approx((0.4, 0.4, 0.4))
    assert torch.equal(seen["without"], x)
    assert torch.equal(seen["original"], seen["swapped"])
    assert torch.equal(handle.model[0](x), seen["swapped"])  # and it is as it was


@pytest.mark.parametrize(
    ("changes", "reason"), [({"rounds": 0}, "not requested"), ({"is_emulated": True}, "cannot be timed")]
)
def test_no_time_without_rounds_or_of_an_emulation(handle: Handle, changes: dict[str, Any], reason: str) -> None:
    asked: dict[str, Any] = {"rounds": 30, "seed": 0, "is_emulated": False} | changes
    with pytest.raises(cost.NotMeasuredError, match=reason):
        cost.speed(handle, lambda: None, CPU, **asked)


def test_a_cpu_keeps_no_peak_of_memory(handle: Handle) -> None:
    with pytest.raises(cost.NotMeasuredError, match="keeps no peak"):
        cost.memory(handle, lambda: None, CPU)


def test_kernels_of_one_call_those_that_differ_first(handle: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 32)
    counts = {row.name: row for row in cost.kernels(handle, lambda: handle.model(x), False)}
    assert counts
    assert all(row.original == row.swapped > 0 for row in counts.values())  # `eager` calls the same operators
    ways = iter([cost.Counter(a=2, b=1, c=1), cost.Counter(a=2, b=1, d=3)])
    monkeypatch.setattr(cost, "_traced", lambda _: next(ways))
    rows = cost.kernels(handle, lambda: None, False)
    assert [(row.name, row.original, row.swapped) for row in rows] == [
        *[("c", 1, 0), ("d", 0, 3)],
        *[("a", 2, 2), ("b", 1, 1)],
    ]
    with pytest.raises(cost.NotMeasuredError, match="runs no kernels"):
        cost.kernels(handle, lambda: None, True)


def test_a_backend_is_emulated_where_only_the_interpreter_lets_it_run(handle: Handle) -> None:
    assert not cost.emulated(handle, CPU)
    assert not cost.emulated(handle, INTERPRETED)  # eager needs no interpreter
    handle.restore()
    with swap(nn.Sequential(Plain()), "triton") as other:
        assert cost.emulated(other, INTERPRETED)
