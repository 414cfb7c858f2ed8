"""What a worker's probes find: memory that calls share, modes of calls, and numbers in generated code."""

from __future__ import annotations

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


def test_numbers_that_become_float64_are_found_in_the_generated_code() -> None:
    code = """
    triton_meta={'signature': {'gate': '*bf16', 'factor': 'fp64', 'n': 'i32', 'BLOCK': 'constexpr'}, 'device': 0},
    triton_meta={'signature': {'in_ptr0': '*fp64', 'out_ptr0': '*fp32', 'xnumel': 'i32'}},
    triton_meta={'signature': {'bias': 'fp64'}}
    """
    assert probes.fp64_numbers(code) == ["bias", "factor"]
    assert probes.fp64_numbers("") == []


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
