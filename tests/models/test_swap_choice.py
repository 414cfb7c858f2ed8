"""Swapping by a choice: which backend runs how many tokens, and what a choice is refused for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.choices_made import a_choice, part
from support.plain_mlp import Plain
from support.tiny_models import build, logits

from mlpfusion import backend as registry
from mlpfusion.backends.auto import Auto
from mlpfusion.errors import NothingSwappedError, UsageError
from mlpfusion.models.swap import swap
from mlpfusion.spec import MODES, MLPSpec
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.choice import Choice

pytest.importorskip("transformers")


def chosen(*backends: str) -> Choice:
    """A choice for `Plain` here: the first backend up to 4 tokens, the second above."""
    spec = MLPSpec(hidden_size=32, intermediate_size=48, activation="silu", dtype="float32")
    first, second = backends
    ranges = [
        part(name, start, last, mode) for mode in MODES for start, last, name in ((1, 4, first), (5, None, second))
    ]
    made: Choice = a_choice(*ranges, spec=spec, backends=backends)
    return made


def refusal(model: Any, choice: Any) -> str:
    with pytest.raises(NothingSwappedError) as raised:
        swap(model, choice if isinstance(choice, str) else Auto(choice))
    return str(raised.value)


def test_a_choice_says_which_backend_runs_how_many_tokens(tmp_path: Path) -> None:
    model, file = Plain(), tmp_path / "choice.json"
    few, many = torch.randn(3, 32), torch.randn(9, 32)
    expected = model(few), model(many)
    results.save(chosen("eager", "triton"), file)
    for backend in (f"auto:{file}", Auto(chosen("eager", "triton"))):
        with swap(model, backend) as handle:
            assert handle.swapped[0].backend == "auto"
            assert torch.equal(model(few), expected[0])
            torch.testing.assert_close(model(many), expected[1])
    assert "the choice is for hidden_size 32" in refusal(Plain(64, 48), f"auto:{file}")
    with pytest.raises(UsageError, match="backend 'auto' needs a file"):
        swap(model, "auto")


def test_backends_are_looked_for_once_for_all_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, load = [], registry.load
    monkeypatch.setattr(registry, "load", lambda name: looked.append(name) or load(name))
    model = torch.nn.Sequential(*(Plain() for _ in range(3)))
    with swap(model, Auto(chosen("eager", "triton"))):
        model.to(torch.float32)
    assert looked == ["eager", "triton"]


def test_a_choice_runs_gate_and_up_in_one_layer_if_all_its_backends_do() -> None:
    model = build("phi3")
    before = logits(model, "phi3")
    with swap(model, Auto(chosen("eager", "triton"))):
        torch.testing.assert_close(logits(model, "phi3"), before)
    assert "takes gate and up as two layers" in refusal(model, chosen("eager", "liger"))
