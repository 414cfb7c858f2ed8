"""The worker's probes of updates: gradients that add up, and operands and weights that change between calls."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.runs_made import run_of, run_of_module
from torch import Tensor, nn

from mlpfusion.stages.validate.worker import guard, update_probes
from mlpfusion.stages.validate.worker.targets.loader import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GIVEN = {
    "gate": torch.tensor([1.0, -2.0, 3.0]),
    "up": torch.tensor([2.0, 5.0, -1.0]),
    "dy": torch.tensor([1.0, 2.0, 4.0]),
}
DGATE, DUP = GIVEN["dy"] * GIVEN["up"], GIVEN["dy"] * GIVEN["gate"]


@pytest.fixture(autouse=True)
def _own_allocators() -> Iterator[None]:
    yield
    guard.restore()


def product(gate: Tensor, up: Tensor) -> Tensor:
    return gate * up


class Writing(torch.autograd.Function):
    """gate·up whose backward writes the gradient of gate over gate."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.gate, ctx.up = gate, up
        return gate * up

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        dup = dy * ctx.gate
        return ctx.gate.data.copy_(dy * ctx.up).clone(), dup


@pytest.mark.parametrize("function", [product, Writing.apply])
def test_gradients_come_three_ways_and_add_up_whatever_a_backward_writes(function: Any) -> None:
    results, facts = update_probes.accumulated(run_of(function), GIVEN, {})
    assert facts == {"written": []}
    for prefix, times in (("d", 1), ("e", 1), ("f", 2)):
        assert torch.equal(results[f"{prefix}:gate"], times * DGATE)
        assert torch.equal(results[f"{prefix}:up"], times * DUP)


def test_an_operand_whose_grad_autograd_wrote_is_named_and_does_not_add_up() -> None:
    def writes(gate: Tensor, up: Tensor) -> Tensor:
        up.grad = torch.ones_like(up)
        return gate * up.detach()

    results, facts = update_probes.accumulated(run_of(writes), GIVEN, {})
    assert facts == {"written": ["up"]}
    assert "d:up" not in results
    assert torch.equal(results["e:up"], torch.ones(3))
    assert torch.equal(results["e:gate"], DGATE)


class Kept(Writing):
    """gate·up that keeps its operands past autograd, so that nobody notices when they change."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        return dy * ctx.up, dy * ctx.gate


@pytest.mark.parametrize("which", ["gate", "up"])
def test_what_autograd_saved_and_is_changed_is_refused(which: str) -> None:
    results, facts = update_probes.modified(run_of(product), GIVEN, {"which": which})
    assert results == {}
    assert facts["refused"].startswith("RuntimeError: ")


def test_a_change_of_what_nobody_saved_changes_nothing() -> None:
    results, facts = update_probes.modified(run_of(product), GIVEN, {"which": "y"})
    assert facts == {}
    assert torch.equal(results["d:gate"], DGATE)
    assert torch.equal(results["d:up"], DUP)


def test_a_change_of_what_is_kept_past_autograd_shows_in_the_gradients() -> None:
    results, facts = update_probes.modified(run_of(Kept.apply), GIVEN, {"which": "gate"})
    assert facts == {}
    assert torch.equal(results["d:gate"], DGATE)
    assert torch.equal(results["d:up"], -1.5 * DUP)


OTHER = {"other:gate": torch.tensor([7.0, 0.5, -3.0]), "other:up": torch.tensor([1.0, 4.0, 9.0])}
OF_MODULES = {way for way, update in update_probes.UPDATES.items() if update in update_probes.OF_MODULES}
PLAIN = [way for way in update_probes.UPDATES if way not in {*OF_MODULES, update_probes.COPIED}]


@pytest.mark.parametrize("way", update_probes.UPDATES)
def test_a_function_sees_updated_operands_in_the_ways_that_functions_have(way: str) -> None:
    given = {**GIVEN, **OTHER}
    assert update_probes.updated(run_of(product), given, {"way": way, "in_eval": True}) == ({}, {"skipped": True})
    results, facts = update_probes.updated(run_of(product), given, {"way": way, "in_eval": False})
    if way not in PLAIN:
        assert (results, facts) == ({}, {"skipped": True})
        return
    assert facts == {"attached": False}
    assert torch.equal(results["w:gate"], OTHER["other:gate"])
    assert torch.equal(results["w:up"], OTHER["other:up"])
    assert torch.equal(results["y"], OTHER["other:gate"] * OTHER["other:up"])
    assert torch.equal(results["t:y"], results["y"])
    assert torch.equal(results["e:y"], results["y"])
    assert torch.equal(results["f:y"], results["y"][None])


@pytest.mark.parametrize("way", PLAIN)
def test_what_a_function_remembers_of_its_first_call_stays_old(way: str) -> None:
    kept: list[Tensor] = []

    def remembers(gate: Tensor, up: Tensor) -> Tensor:
        kept.append((gate * up).detach().clone())
        return gate * up if torch.is_grad_enabled() else kept[0]

    results, _ = update_probes.updated(run_of(remembers), {**GIVEN, **OTHER}, {"way": way, "in_eval": False})
    assert torch.equal(results["y"], GIVEN["gate"] * GIVEN["up"])
    assert torch.equal(results["t:y"], OTHER["other:gate"] * OTHER["other:up"])


class MLP(nn.Module):
    """A gated MLP without an activation; `stale` uses copies of its first weights."""

    def __init__(self, wg: Tensor, wu: Tensor, wd: Tensor, *, stale: bool = False) -> None:
        super().__init__()
        self.wg, self.wu, self.wd = (nn.Parameter(each.detach().clone()) for each in (wg, wu, wd))
        self.copies = [each.detach().clone() for each in (wg, wu, wd)] if stale else None

    def forward(self, x: Tensor) -> Tensor:
        wg, wu, wd = self.copies or (self.wg, self.wu, self.wd)
        return (x @ wg.T * (x @ wu.T)) @ wd.T


def weights(seed: int, prefix: str = "") -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"wg": (6, 4), "wu": (6, 4), "wd": (4, 6)}
    return {f"{prefix}{name}": torch.randn(shape, generator=generator) for name, shape in shapes.items()}


LAYERS = "other layers in the places of its own"


def test_a_module_without_layers_has_none_that_could_be_replaced() -> None:
    given = {"x": torch.ones(3, 4), **weights(0), **weights(1, "other:")}
    assert update_probes.updated(run_of_module(MLP), given, {"way": LAYERS, "in_eval": False}) == (
        {},
        {"skipped": True},
    )


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("way", [each for each in update_probes.UPDATES if each != LAYERS])
def test_a_module_is_called_with_updated_weights_in_every_way(way: str, stale: bool) -> None:
    x = torch.linspace(-1, 1, 12).view(3, 4)
    given = {"x": x, **weights(0), **weights(1, "other:")}
    run = run_of_module(lambda *each: MLP(*each, stale=stale))
    of_copy = way == update_probes.COPIED
    for in_eval, names in ((False, ("y", "t:y", "e:y")), (True, ("s:y",))):
        results, facts = update_probes.updated(run, given, {"way": way, "in_eval": in_eval})
        assert facts == {"attached": False}
        assert torch.equal(results["w:x"], x)
        for name in ("wg", "wu", "wd"):
            torch.testing.assert_close(results[f"w:{name}"], given[name if of_copy else f"other:{name}"])
        wanted = weights(0 if stale or of_copy else 1)
        for name in names:
            torch.testing.assert_close(results[name], MLP(**wanted)(x).detach())
        if not in_eval:
            torch.testing.assert_close(results["f:y"], MLP(**wanted)(x[:1]).detach())
            torch.testing.assert_close(results["a:y"].float(), results["y"], rtol=0.02, atol=0.02)


class Remembering(MLP):
    """Remembers its first weights where `when` says so of the module and x."""

    def __init__(self, wg: Tensor, wu: Tensor, wd: Tensor, *, when: Callable[[nn.Module, Tensor], bool]) -> None:
        super().__init__(wg, wu, wd)
        self.when, self.first = when, [MLP(wg, wu, wd)]  # whose weights are not its own

    def forward(self, x: Tensor) -> Tensor:
        return self.first[0](x) if self.when(self, x) and not torch.is_grad_enabled() else super().forward(x)


@pytest.mark.parametrize(
    ("when", "old"),
    [
        (lambda module, x: True, {"y", "e:y", "f:y"}),
        (lambda module, x: module.training, {"y"}),
        (lambda module, x: not module.training, {"e:y", "f:y"}),
        (lambda module, x: len(x) == 1, {"f:y"}),
    ],
)
def test_what_remembers_its_weights_in_some_calls_is_old_in_those(
    when: Callable[[nn.Module, Tensor], bool], old: set[str]
) -> None:
    x = torch.linspace(-1, 1, 12).view(3, 4)
    given = {"x": x, **weights(0), **weights(1, "other:")}
    run = run_of_module(lambda *each: Remembering(*each, when=when))
    results, _ = update_probes.updated(run, given, {"way": "an update in place", "in_eval": False})
    for name in ("y", "e:y", "f:y", "t:y"):
        right = MLP(**weights(0 if name in old else 1))(x[:1] if name == "f:y" else x).detach()
        torch.testing.assert_close(results[name], right)


def test_new_tensors_at_old_addresses_are_new_and_there() -> None:
    module = MLP(**weights(0))
    old = list(module.parameters())
    leaves, places = list(old), [each.data_ptr() for each in old]
    update_probes.UPDATES["new tensors at the old addresses"](module, leaves, list(weights(1).values()))
    assert [each.data_ptr() for each in leaves] == places
    assert all(new is not before for new, before in zip(leaves, old, strict=True))
    assert all(new is mine for new, mine in zip(leaves, module.parameters(), strict=True))


class Layer(nn.Module):
    """w·x of one weight, which a copy keeps for itself unless it is locked."""

    def __init__(self, weight: Tensor, *, locked: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.lock = (each for each in ()) if locked else None  # a generator can't be copied

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


def bound_of(layer: Layer) -> Bound:
    x = torch.ones(2)
    return Bound(layer, (x,), (x, layer.weight), layer)


def test_a_copy_has_weights_of_its_own_and_what_cannot_be_copied_is_none() -> None:
    layer = Layer(torch.ones(2))
    made = update_probes._copied(bound_of(layer))
    assert made is not None
    with torch.no_grad():
        layer.weight.fill_(3.0)
    assert torch.equal(made(), torch.ones(2))
    assert update_probes._copied(bound_of(Layer(torch.ones(2), locked=True))) is None


def test_an_assigned_weight_is_another_parameter_in_other_memory() -> None:
    layer = Layer(torch.ones(2))
    before, old = layer.weight, [layer.weight]
    update_probes._assigned(layer, old, [torch.full((2,), 5.0)])
    assert layer.weight is old[0] is not before
    assert torch.equal(layer.weight, torch.full((2,), 5.0))
    assert torch.equal(before, torch.ones(2))


class Projected(nn.Module):
    """Two layers, the first of which it may look up once."""

    def __init__(self, weights: list[Tensor], *, saved: float = 1.0) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(*reversed(each.shape), bias=False) for each in weights)
        for layer, weight in zip((self.first, self.second), weights, strict=True):
            layer.weight = nn.Parameter(weight)
        self.saved = saved

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        found = super().state_dict(*args, **kwargs)
        found["first.weight"] = found["first.weight"] * self.saved
        return found


def test_other_layers_are_in_the_places_of_those_before() -> None:
    module = Projected([torch.ones(3, 2), torch.ones(2, 3)])
    layers, old = (module.first, module.second), [module.first.weight, module.second.weight]
    state = torch.get_rng_state()
    update_probes._layers_replaced(module, old, [torch.full((3, 2), 2.0), torch.full((2, 3), 3.0)])
    assert torch.equal(torch.get_rng_state(), state)  # a new layer draws no weights
    assert all(layer is not before for layer, before in zip((module.first, module.second), layers, strict=True))
    assert [old[0] is module.first.weight, old[1] is module.second.weight] == [True, True]
    assert torch.equal(module(torch.ones(1, 2)), torch.full((1, 2), 36.0))


@pytest.mark.parametrize(("saved", "outdated"), [(1.0, []), (2.0, ["first.weight"])])
def test_a_checkpoint_with_other_values_is_outdated(saved: float, outdated: list[str]) -> None:
    module = Projected([torch.ones(3, 2), torch.ones(2, 3)], saved=saved)
    x = torch.ones(1, 2)
    assert update_probes._outdated(Bound(module, (x,), (x, *module.parameters()), module)) == outdated
    assert update_probes._outdated(Bound(torch.mul, (x, x), (x, x))) == []


class Growing(MLP):
    """Has a buffer of another shape after its first call, in its checkpoint or not."""

    def __init__(self, *weights: Tensor, persistent: bool) -> None:
        super().__init__(*weights)
        self.register_buffer("scratch", torch.empty(0), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        self.scratch = torch.empty(7)
        return super().forward(x)


class Holding(MLP):
    """Keeps its last result, with its graph, and what cannot be copied from its first `call` on or from the start."""

    def __init__(self, *weights: Tensor, lock: str = "") -> None:
        super().__init__(*weights)
        self.lock, self.held = lock, threading.Lock() if lock == "start" else None
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.held = threading.Lock() if self.lock else None
        self.last = super().forward(x)
        return self.last


class Scaled(MLP):
    """Multiplies by a buffer that no checkpoint has."""

    def __init__(self, *weights: Tensor) -> None:
        super().__init__(*weights)
        self.register_buffer("one", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.one


@pytest.mark.parametrize(
    ("make", "way", "left"),
    [
        (lambda *each: Growing(*each, persistent=True), "load_state_dict", {"saved": ["scratch"]}),
        (lambda *each: Growing(*each, persistent=False), "load_state_dict", {"attached": False}),
        (Holding, update_probes.COPIED, {"uncopyable"}),
        (lambda *each: Holding(*each, lock="call"), update_probes.COPIED, {"uncopyable"}),
        (lambda *each: Holding(*each, lock="start"), update_probes.COPIED, {"skipped": True}),
        (lambda *each: Holding(*each, lock="start"), update_probes.BUILT_EMPTY, {"skipped": True}),
        (Holding, update_probes.BUILT_EMPTY, {"attached": False}),
        (lambda *each: Growing(*each, persistent=False), update_probes.BUILT_EMPTY, {"attached": False}),
    ],
)
def test_what_calls_leave_in_a_module_is_told(
    make: Callable[..., nn.Module], way: str, left: dict[str, object] | set[str]
) -> None:
    given = {"x": torch.ones(3, 4), **weights(0), **weights(1, "other:")}
    _, facts = update_probes.updated(run_of_module(make), given, {"way": way, "in_eval": False})
    assert (facts if isinstance(left, dict) else set(facts)) == left


@pytest.mark.parametrize(("make", "right"), [(MLP, True), (Scaled, False)])
def test_what_no_checkpoint_has_is_nan_in_a_module_that_was_built_empty(
    make: Callable[..., nn.Module], right: bool
) -> None:
    given = {"x": torch.ones(3, 4), **weights(0), **weights(1, "other:")}
    results, _ = update_probes.updated(run_of_module(make), given, {"way": update_probes.BUILT_EMPTY, "in_eval": True})
    assert bool(results["s:y"].isfinite().all()) is right


def test_one_weight_of_many_is_updated_alone() -> None:
    old, new = ([torch.full((2,), float(each + add)) for each in range(3)] for add in (0, 10))
    update_probes._update(update_probes._data_replaced, None, old, new, 1)
    assert [each[0].item() for each in old] == [0, 11, 2]
    update_probes._update(update_probes._data_replaced, None, old, new, None)
    assert [each[0].item() for each in old] == [10, 11, 12]


@pytest.mark.parametrize(("buffers", "overwritten"), [(1, ["up"]), (4, ["up"]), (5, [])])
def test_gradients_of_many_calls_that_take_turns_are_named(buffers: int, overwritten: list[str]) -> None:
    kept: list[Tensor] = []

    class Turns(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
            ctx.save_for_backward(gate, up)
            return gate * up

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
            gate, up = ctx.saved_tensors
            kept.append(dy * gate if len(kept) < buffers else kept.pop(0).copy_(dy * gate))
            return dy * up, kept[-1].view(gate.shape)

    assert update_probes.held(run_of(Turns.apply), GIVEN, {"count": 5}) == ({}, {"overwritten": overwritten})
