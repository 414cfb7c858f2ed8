"""What a proof judges: a swap's handle and a trial of Inductor's pass alike."""

from __future__ import annotations

import pytest

from mlpfusion.inductor import Trial
from mlpfusion.models.swap import Handle
from mlpfusion.stages.prove.change import Change, Compiling


@pytest.mark.parametrize("kind", [Handle, Trial])
@pytest.mark.parametrize("name", sorted(name for name in vars(Change) if not name.startswith("_")))
def test_both_have_all_that_a_proof_asks_for(kind: type, name: str) -> None:
    assert hasattr(kind, name)


def test_only_a_trial_begins_by_compiling() -> None:
    assert issubclass(Trial, Compiling)
    assert not issubclass(Handle, Compiling)
