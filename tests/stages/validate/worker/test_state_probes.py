"""The worker's probes of what a call leaves behind: generators that it seeds or draws from, and memory that grows."""

from __future__ import annotations

import gc
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.runs_made import run_of, run_of_module
from torch import Tensor, nn

from mlpfusion.stages.validate.worker import settings, state_probes

if TYPE_CHECKING:
    from collections.abc import Callable

GIVEN = {"gate": torch.ones(256, 16), "up": torch.ones(256, 16), "dy": torch.ones(256, 16)}
BYTES = 256 * 16 * 4
GRAD = pytest.mark.parametrize("grad", [False, True])
TORCH, _, RANDOM, NUMPY = settings.GENERATORS


def after(change: Callable[[], object]) -> Callable[[Tensor, Tensor], Tensor]:
    def call(gate: Tensor, up: Tensor) -> Tensor:
        change()
        return gate * up

    return call


@GRAD
@pytest.mark.parametrize(
    ("change", "seeded", "drawn"),
    [
        (lambda: None, [], []),
        (lambda: torch.manual_seed(0), [TORCH], []),
        (lambda: random.seed(0), [RANDOM], []),
        (lambda: np.random.seed(0), [NUMPY], []),
        (lambda: torch.rand(2), [], [TORCH]),
        (random.random, [], [RANDOM]),
        (np.random.rand, [], [NUMPY]),
        (lambda: (random.seed(5), torch.rand(2)), [RANDOM], [TORCH]),
        (lambda: (torch.manual_seed(0), torch.rand(2)), [TORCH], []),
    ],
)
def test_what_a_call_seeds_and_what_it_draws_from_are_told_apart(
    change: Callable[[], object], seeded: list[str], drawn: list[str], grad: bool
) -> None:
    before = settings.read(settings.GENERATORS)
    found = state_probes.state(run_of(after(change)), GIVEN, {"grad": grad})
    assert found == ({}, {"seeded": seeded, "drawn": drawn})
    assert settings.changed(before) == {}


class Seeding(torch.autograd.Function):
    """gate·up whose backward seeds."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return gate * up

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        gate, up = ctx.saved_tensors
        return dy * up, dy * gate


@GRAD
def test_a_backward_counts_only_where_there_is_one(grad: bool) -> None:
    facts = state_probes.state(run_of(Seeding.apply), GIVEN, {"grad": grad})[1]
    assert facts == {"seeded": [TORCH] if grad else [], "drawn": []}


def held(function: Callable[..., Tensor], *, grad: bool, **options: bool) -> list[list[int]]:
    """What each half added for good, and then what only a collection freed after each."""
    tensors, facts = state_probes.growth(run_of(function), GIVEN, {"grad": grad, **options})
    assert tensors == {}
    assert facts["calls"] == state_probes.HALF
    (_, first), (raw, second), (last_raw, third) = facts["held"]
    pairs = ((second, first), (third, second), (raw, second), (last_raw, third))
    return [[a - b for a, b in zip(*pair, strict=True)] for pair in pairs]


@GRAD
def test_a_call_that_keeps_nothing_does_not_grow(grad: bool) -> None:
    assert [each[:2] for each in held(torch.mul, grad=grad)] == [[0, 0]] * 4


@GRAD
def test_each_result_that_is_kept_is_counted_with_its_memory(grad: bool) -> None:
    kept = []

    def keeps(gate: Tensor, up: Tensor) -> Tensor:
        kept.append((gate * up).detach())
        return gate * up

    *grown, freed, later = held(keeps, grad=grad)
    assert [each[:2] for each in grown] == [[state_probes.HALF, state_probes.HALF * BYTES]] * 2
    assert freed[:2] == later[:2] == [0, 0]


@pytest.mark.parametrize("varied", [False, True])
def test_what_is_kept_for_each_shape_grows_where_shapes_differ(varied: bool) -> None:
    kept: dict[torch.Size, Tensor] = {}

    def keeps(gate: Tensor, up: Tensor) -> Tensor:
        kept.setdefault(gate.shape, torch.empty_like(gate))
        return gate * up

    assert [each[0] for each in held(keeps, grad=False, varied=varied)] == [state_probes.HALF * varied] * 2 + [0, 0]
    calls = state_probes.WARM + 2 * state_probes.HALF
    assert [rows for rows, _ in kept] == ([255 - call for call in range(calls)] if varied else [256])


def test_one_tensor_that_gets_longer_with_each_shape_grows_and_one_as_large_as_the_largest_does_not() -> None:
    sums: dict[torch.Size, Tensor] = {}
    largest = [torch.empty(0)]

    def keeps(gate: Tensor, up: Tensor) -> Tensor:
        if gate.shape not in sums:
            longer = torch.cat([*sums.values(), gate])
            sums.clear()
            sums[gate.shape] = longer
        return gate * up

    def reuses(gate: Tensor, up: Tensor) -> Tensor:
        if largest[0].numel() < gate.numel():
            largest[0] = torch.empty(gate.numel())
        return gate * up

    (tensors, size, *_), *_ = held(keeps, grad=False, varied=True)
    assert tensors == 0
    assert size > BYTES
    assert [each[:2] for each in held(reuses, grad=False, varied=True)] == [[0, 0]] * 4


def test_small_objects_are_counted_as_at_least_their_smallest_size() -> None:
    kept: list[list[str]] = []

    def keeps(gate: Tensor, up: Tensor) -> Tensor:
        kept.append([f"of a call {index}" for index in range(500)])
        return gate * up

    least = state_probes.HALF * 500 * state_probes.SMALLEST
    assert all(each[2] >= least for each in held(keeps, grad=False)[:2])


@pytest.mark.parametrize("before", [0, 16])
def test_calls_before_memory_is_counted_fill_a_cache_that_is_bounded(before: int) -> None:
    kept: dict[torch.Size, Tensor] = {}

    def keeps(gate: Tensor, up: Tensor) -> Tensor:
        if gate.shape not in kept and len(kept) == 16:
            del kept[next(iter(kept))]
        kept[gate.shape] = torch.empty_like(gate)
        return gate * up

    options = {"grad": False, "varied": True, "before": before}
    first, second, third = (each[1][0] for each in state_probes.growth(run_of(keeps), GIVEN, options)[1]["held"])
    assert (second - first, third - second) == ((0, 0) if before else (state_probes.HALF, state_probes.HALF))


@pytest.mark.parametrize("dropped", [False, True])
def test_what_is_kept_until_a_backward_grows_where_none_comes(dropped: bool) -> None:
    kept: list[Tensor] = []

    def keeps(gate: Tensor, up: Tensor) -> Tensor:
        y = gate * up
        kept.append(torch.empty_like(gate))
        y.register_hook(lambda dy: kept.clear())
        return y

    grown = held(keeps, grad=True, dropped=dropped)
    assert [each[0] for each in grown[:2]] == [state_probes.HALF * dropped] * 2


class Layer(nn.Module):
    """A module of three weights, of which those made before may be kept."""

    made: list[nn.Module] = []  # noqa: RUF012

    def __init__(self, *weights: Tensor, most: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(weight) for weight in weights)
        self.most = most

    def forward(self, x: Tensor) -> Tensor:
        others = [each for each in Layer.made if each is not self]
        Layer.made[:] = [*others, self][-self.most :] if self.most else []
        wg, wu, wd = self.weights
        return (x @ wg.T * (x @ wu.T)) @ wd.T


@GRAD
@pytest.mark.parametrize(("most", "kept"), [(0, 0), (1, 1), (9, 3)])
def test_modules_that_somebody_keeps_are_counted(most: int, kept: int, grad: bool) -> None:
    Layer.made.clear()
    given = {"x": torch.ones(3, 4), "wg": torch.ones(5, 4), "wu": torch.ones(5, 4), "wd": torch.ones(4, 5)}
    given["dy"] = torch.ones(3, 4)
    run = run_of_module(lambda *weights: Layer(*weights, most=most))
    try:
        assert state_probes.deleted(run, given, {"grad": grad, "built": 3}) == ({}, {"built": 3, "kept": kept})
    finally:
        Layer.made.clear()
    assert state_probes.deleted(run_of(torch.mul), GIVEN, {"grad": grad, "built": 3}) == ({}, {"skipped": True})


def test_two_views_of_one_memory_are_two_tensors_of_its_size() -> None:
    kept: list[Tensor] = []

    def keeps(gate: Tensor, up: Tensor) -> Tensor:
        y = gate * up
        kept.extend((y.detach(), y[3:].detach()))
        return y

    grown = held(keeps, grad=False)[0]
    assert grown[0] == 2 * state_probes.HALF
    assert grown[1] == state_probes.HALF * BYTES


def test_what_lies_in_cycles_grows_until_it_is_collected() -> None:
    def cyclic(gate: Tensor, up: Tensor) -> Tensor:
        cycle: list[object] = [(gate * up).detach()]
        cycle.append(cycle)
        return gate * up

    *grown, freed, later = held(cyclic, grad=False)
    assert [each[:2] for each in grown] == [[0, 0]] * 2
    assert freed[:2] == later[:2] == [state_probes.HALF, state_probes.HALF * BYTES]


def test_small_objects_that_stay_are_told_from_many_more_in_cycles() -> None:
    """As an interpreter makes them."""
    kept: list[tuple[str, int]] = []

    def notes(gate: Tensor, up: Tensor) -> Tensor:
        for _ in range(50):
            cycle: list[object] = [str(len(kept)), *range(1000, 1200)]
            cycle.append(cycle)
        kept.append((f"call {len(kept)}", 1000 + len(kept)))
        return gate * up

    (_, first), (raw, second), (_, third) = (
        (before[-1], after[-1])
        for before, after in state_probes.growth(run_of(notes), GIVEN, {"grad": False, "half": 100})[1]["held"]
    )
    assert raw - second > 100 * 50
    assert all(200 <= grown <= 500 for grown in (second - first, third - second))


@pytest.mark.parametrize("was_frozen", [True, False])
def test_what_was_frozen_stays_so_and_nothing_else(was_frozen: bool) -> None:
    before = gc.get_freeze_count()
    (gc.freeze if was_frozen else gc.unfreeze)()
    try:
        held(lambda gate, up: gate * up, grad=False)
        assert (gc.get_freeze_count() > 0) is was_frozen
    finally:
        (gc.freeze if before else gc.unfreeze)()


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_as_it_was_even_where_a_call_raises(was_on: bool) -> None:
    def raises(gate: Tensor, up: Tensor) -> Tensor:
        raise ValueError("no")

    now = gc.isenabled()
    (gc.enable if was_on else gc.disable)()
    try:
        with pytest.raises(ValueError, match="no"):
            state_probes.growth(run_of(raises), GIVEN, {"grad": False})
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if now else gc.disable)()
