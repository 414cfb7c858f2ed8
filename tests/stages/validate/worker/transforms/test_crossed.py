"""In which mode a crossed call is made, on what, and what came before it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from support.runs_made import run_of
from torch import Tensor

from mlpfusion.stages.validate.worker.transforms import crossed

SHAPE = (4, 8)
GIVEN = {
    f"{prefix}{name}": torch.full((SHAPE[0] + (prefix == "more:"), SHAPE[1]), value)
    for value, prefix in ((1.0, ""), (2.0, "other:"), (3.0, "more:"))
    for name in ("gate", "up")
} | {"dy": torch.ones(SHAPE)}


class Seen:
    """gate·up; notes of each call what it was made on and within."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, gate: Tensor, up: Tensor) -> Tensor:
        self.calls.append(
            {
                "value": float(gate.detach().flatten()[0]),
                "rows": gate.shape[0],
                "grad": torch.is_grad_enabled(),
                "inference": torch.is_inference_mode_enabled(),
                "default": torch.get_default_dtype(),
                "thread": threading.current_thread() is not threading.main_thread(),
                "hooks": bool(torch._C._autograd._top_saved_tensors_default_hooks(True)),
                "needs": (gate.requires_grad, up.requires_grad),
            }
        )
        return gate * up


def called(
    mode: str = "a plain call", needs: tuple[str, ...] = (), before: str = "nothing", between: str = "nothing"
) -> tuple[Seen, dict[str, Tensor]]:
    seen = Seen()
    options = {"mode": mode, "needs": needs, "before": before, "between": between}
    results, facts = crossed.crossed(run_of(seen), GIVEN, options)
    assert facts == {"changed": []}
    assert torch.equal(results["y"], torch.ones(SHAPE))
    assert set(results) == {"y", *(f"d:{name}" for name in needs)}
    assert all(torch.equal(results[f"d:{name}"], torch.ones(SHAPE)) for name in needs)
    return seen, results


@pytest.mark.parametrize(
    ("mode", "what"),
    [
        ("in inference mode", {"inference": True}),
        ("with gradients on", {"grad": True}),
        ("default dtype bfloat16", {"default": torch.bfloat16}),
        ("in another thread", {"thread": True}),
    ],
)
def test_a_call_is_within_its_mode_and_nothing_is_left(mode: str, what: dict[str, Any]) -> None:
    plain = called()[0].calls[0]
    assert called(mode)[0].calls == [plain | what]
    assert called()[0].calls == [plain]


@pytest.mark.parametrize("mode", ["a plain call", "in another thread", "with checkpointing", "default dtype bfloat16"])
def test_gradients_are_on_for_those_that_need_them_in_any_mode(mode: str) -> None:
    call = called(mode, ("up",))[0].calls[0]
    assert (call["grad"], call["needs"]) == (True, (False, True))


def test_saved_tensors_are_elsewhere_in_that_mode_alone() -> None:
    for mode in ("a plain call", "with saved tensors elsewhere"):
        assert called(mode, ("gate", "up"))[0].calls[0]["hooks"] == (mode != "a plain call")


@pytest.mark.parametrize("before", crossed.OTHERS)
def test_others_come_before_on_their_own_values_and_the_call_is_the_last(before: str) -> None:
    calls = called(before=before)[0].calls
    values = {
        "nothing": [],
        "the same call": [1],
        "a call of another shape": [3],
        "a call that is not trained": [3],
        "three calls": [2] * crossed.REPEATED,
    }
    assert [call["value"] for call in calls] == [*values.get(before, [2]), 1]
    assert {call["rows"] for call in calls if call["value"] == 3} <= {SHAPE[0] + 1}


@pytest.mark.parametrize("between", crossed.OTHERS)
def test_what_comes_between_a_call_and_its_backward_changes_neither(between: str) -> None:
    calls = called(needs=("gate", "up"), between=between)[0].calls
    assert calls[0]["value"] == 1
    assert len(calls) == {"nothing": 1, "three calls": 1 + crossed.REPEATED}.get(between, 2)


def test_what_raises_in_another_thread_raises_here() -> None:
    def refuses(gate: Tensor, up: Tensor) -> Tensor:
        raise ValueError("not here")

    options = {"mode": "in another thread", "needs": (), "before": "nothing", "between": "nothing"}
    with pytest.raises(ValueError, match="not here"):
        crossed.crossed(run_of(refuses), GIVEN, options)


def test_what_is_overwritten_is_named() -> None:
    options = {"mode": "a plain call", "needs": (), "before": "nothing", "between": "nothing"}
    _, facts = crossed.crossed(run_of(lambda gate, up: gate.mul_(2 * up)), GIVEN, options)
    assert facts == {"changed": ["gate"]}
