"""What is said of gradients where one operand trains alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mlpfusion.stages.validate.channel import Raised
from mlpfusion.stages.validate.judge.checks.transforms.alone import another_alone
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

WHOLE = {"d:gate": torch.ones(3), "d:up": torch.ones(3)}


def exam(answer: Any) -> Any:
    """An exam of an act·mul whose worker answers so, and notes what it was asked."""

    def ask(probe: str, given: object, **options: object) -> Any:
        made.asked.append((probe, options))
        if isinstance(answer, Exception):
            raise answer
        return answer, {}

    made = SimpleNamespace(asked=[], ask=ask, names=("gate", "up"), plain=(3,))
    return made


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"d:gate": torch.ones(3)}, "there, where up alone needs a gradient, there is no gradient for up"),
        (
            WHOLE | {"d:gate": 0 * WHOLE["d:gate"]},
            "there, where gate alone needs a gradient, the gradient of gate is 0",
        ),
        (WHOLE | {"d:up": 1.1 * WHOLE["d:up"]}, "where up alone needs a gradient, the gradient of up is off by 0.1"),
    ],
)
def test_a_gradient_that_is_missing_or_another_is_a_fault(found: Any, words: str) -> None:
    wrong = another_alone(exam(found), {}, WHOLE, "float32", "there", within="checkpoint")
    assert wrong is not None
    assert wrong.status == "fail"
    assert words in wrong.sentence


@pytest.mark.parametrize(("within", "probe"), [("compile", "alone compiled"), ("autocast", "alone")])
def test_the_same_gradients_are_right_and_the_worker_is_told_where(within: str, probe: str) -> None:
    asked = exam(WHOLE)
    assert another_alone(asked, {}, WHOLE, "float32", "there", within=within) is None
    assert asked.asked == [(probe, {"within": within})]


def test_a_call_that_only_then_is_refused_is_a_hazard() -> None:
    raised = RaisedError(Raised(why="refused", exception="ValueError", text="no"))
    found = another_alone(exam(raised), {}, WHOLE, "float32", "there", within="checkpoint")
    assert found is not None
    assert found.hazard
    assert "breaks there where one operand alone needs a gradient: ValueError: no" in found.sentence
