"""What a proof judges: a swap's handle and a trial of Inductor's pass alike."""

from __future__ import annotations

import pytest
from torch import nn

import mlpfusion
from mlpfusion.inductor import Trial
from mlpfusion.models.swap import Handle
from mlpfusion.stages.prove.change import Change, Compiling


class Block(nn.Module):
    """A gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def made(kind: type) -> Handle | Trial:
    model = nn.Sequential(Block())
    return Trial(model, "eager") if kind is Trial else mlpfusion.swap(model, backend="eager")


@pytest.mark.parametrize("kind", [Handle, Trial])
def test_both_have_all_that_a_proof_asks_for(kind: type) -> None:
    asked = {name for name in (*vars(Change), *Change.__annotations__) if not name.startswith("_")}
    assert asked >= {"model", "backend", "how", "call", "paused"}
    assert asked <= set(dir(made(kind)))


def test_only_a_trial_begins_by_compiling() -> None:
    assert isinstance(made(Trial), Compiling)
    assert not isinstance(made(Handle), Compiling)
