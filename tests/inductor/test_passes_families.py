"""Whole models of real families: what a swap takes is what the pass takes, with the same logits and gradients."""

from __future__ import annotations

import pytest
import torch
from support.passed import assert_same, backend
from support.tiny_models import FAMILIES, build, inputs
from torch import nn

from mlpfusion.errors import NothingSwappedError
from mlpfusion.inductor.ledger import LEDGER
from mlpfusion.inductor.passes import Pass
from mlpfusion.inductor.settings import settle
from mlpfusion.models.swap import swap

pytest.importorskip("transformers")
pytestmark = pytest.mark.full


def _taken(model: nn.Module) -> int:
    try:
        with swap(model, "eager") as handle:
            return len(handle.swapped)
    except NothingSwappedError:
        return 0


def _outcome(model: nn.Module, call: object, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    logits = call(**given).logits
    parameters = {name: each for name, each in model.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(logits.square().mean(), list(parameters.values()), allow_unused=True)
    gradients = {name: each for name, each in zip(parameters, found, strict=True) if each is not None}
    return {"logits": logits.detach(), **gradients}


@pytest.mark.parametrize("family", FAMILIES)
def test_matches_are_the_mlps_that_a_swap_takes(family: str) -> None:
    model, given = build(family), inputs(family)
    wanted, right = _taken(model), _outcome(model, model, given)
    torch._dynamo.reset()
    LEDGER.clear()
    call = torch.compile(model, backend=backend(Pass(settle("eager", 0)), [], "aot_eager"))
    assert_same(_outcome(model, call, given), right)
    report = LEDGER.report()
    assert len(report.placed) == wanted, str(report)
