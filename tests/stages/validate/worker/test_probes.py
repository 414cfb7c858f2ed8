"""What a worker's probes find: memory that calls share, modes of calls, and frozen operands."""

from __future__ import annotations

import sys

import pytest
import torch
from support.runs_made import run_of
from torch import Tensor, nn

from mlpfusion.stages.validate.worker import probes
from mlpfusion.stages.validate.worker.targets.loader import Bound

GIVEN = {"gate": torch.tensor([1.0, 2.0, -3.0]), "up": torch.tensor([4.0, -5.0, 6.0])}
OTHERS = {"other:gate": torch.tensor([7.0, 0.5, -3.0]), "other:up": torch.tensor([1.0, 4.0, 9.0])}
ALMOST = {"almost:gate": torch.tensor([1.0, 9.0, -3.0]), "almost:up": torch.tensor([4.0, -5.0, 7.0])}
ALL = {**GIVEN, **OTHERS, **ALMOST}


# ---- results of several calls ----------------------------------------------------------------------------------------


def test_results_of_their_own_are_left_alone_and_computed_anew() -> None:
    results, facts = probes.reuse(run_of(torch.mul), ALL, {"others": 5})
    assert facts == {"at": 0}
    assert torch.equal(results["before"], GIVEN["gate"] * GIVEN["up"])
    assert torch.equal(results["second"], OTHERS["other:gate"] * OTHERS["other:up"])
    assert torch.equal(results["almost:gate"], ALMOST["almost:gate"] * GIVEN["up"])
    assert torch.equal(results["almost:up"], GIVEN["gate"] * ALMOST["almost:up"])


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_buffers_that_take_turns_are_found_by_the_call_that_needs_the_first_again(count: int) -> None:
    ring = [torch.empty(3) for _ in range(count)]
    calls = [0]

    def turning(gate: Tensor, up: Tensor) -> Tensor:
        calls[0] += 1
        return ring[calls[0] % count].copy_(gate * up)

    facts = probes.reuse(run_of(turning), ALL, {"others": 8})[1]
    assert facts == {"at": count if count <= 8 else 0}


@pytest.mark.parametrize("looked_at", [0, 2, slice(0, 1), slice(2, 3)])
def test_a_result_that_is_known_by_a_part_of_its_operands_is_given_again(looked_at: int | slice) -> None:
    kept: dict[str, Tensor] = {}

    def knowing(gate: Tensor, up: Tensor) -> Tensor:
        return kept.setdefault(str(gate[looked_at].tolist()), gate * up)

    results, _ = probes.reuse(run_of(knowing), ALL, {"others": 1})
    assert torch.equal(results["almost:gate"], results["before"])


# ---- modes -----------------------------------------------------------------------------------------------------------


class Telling(nn.Module):
    """What a call sees: gradients on, inference mode, training."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tensor([torch.is_grad_enabled(), torch.is_inference_mode_enabled(), self.training])


class DefaultDtype(nn.Module):
    """The default dtype that a call sees."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(1) + 0 * x.to(torch.get_default_dtype())


@pytest.mark.parametrize("name", ["bfloat16", "float64"])
def test_a_call_under_another_default_dtype_leaves_the_usual_one(name: str) -> None:
    bound = Bound(DefaultDtype(), (torch.zeros(3),), ())
    with probes.in_mode(bound, f"default {name}"):
        assert bound().dtype is getattr(torch, name)
        assert not torch.is_grad_enabled()
    assert bound().dtype is torch.float32


@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize(
    ("mode", "seen"),
    [(None, [0, 0, 1]), ("inference", [0, 1, 1]), ("eval", [0, 0, 0]), ("gradients on", [1, 0, 1])],
)
def test_a_call_is_made_in_the_mode_and_leaves_it(mode: str | None, seen: list[int], is_function: bool) -> None:
    module = Telling()
    bound = Bound(module, (torch.zeros(3),), (), None if is_function else module)
    with probes.in_mode(bound, mode):
        assert bound().tolist() == seen
    assert bound().tolist() == [1, 0, 1]


# ---- operands --------------------------------------------------------------------------------------------------------


def test_operands_without_a_name_have_no_reference_but_the_call_s() -> None:
    seen: list[tuple[int, int]] = []

    def counting(gate: Tensor, up: Tensor) -> Tensor:
        seen.append((sys.getrefcount(gate), sys.getrefcount(up)))
        return gate * up

    for unnamed in (True, False):
        probes.forward(run_of(counting), GIVEN, {"unnamed": unnamed})
    assert seen[0] == (2, 2)
    assert min(seen[1]) > 2


def test_frozen_operands_need_a_gradient_once_they_are_unfrozen() -> None:
    given = GIVEN | {"dy": torch.tensor([1.0, 2.0, 4.0])}
    needed: list[tuple[bool, bool]] = []

    def noting(gate: Tensor, up: Tensor) -> Tensor:
        needed.append((gate.requires_grad, up.requires_grad))
        return gate * up

    results, facts = probes.partial(run_of(noting), given, {"of": ["gate", "up"], "earlier": ["up"]})
    assert needed == [(False, True), (True, True)]
    assert facts == {"changed": [], "changed_by_backward": []}
    assert torch.equal(results["d:up"], given["dy"] * given["gate"])


def test_what_a_forward_overwrites_is_told_from_what_a_backward_does() -> None:
    given = GIVEN | {"dy": torch.ones(3)}

    def overwriting(gate: Tensor, up: Tensor) -> Tensor:
        y = gate * up
        gate.data.zero_()
        return y

    def later(gate: Tensor, up: Tensor) -> Tensor:
        y = gate * up
        y.register_hook(lambda dy: up.data.zero_() + dy)
        return y

    for function, changed in ((overwriting, (["gate"], ["gate"])), (later, ([], ["up"]))):
        _, facts = probes.partial(run_of(function), given, {"of": ["gate"]})
        assert (facts["changed"], facts["changed_by_backward"]) == changed
