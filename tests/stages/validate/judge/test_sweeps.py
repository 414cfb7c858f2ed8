"""Gate values go through a whole MLP unchanged, so that a single activation is seen at each of them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.stages.validate.judge.exam import UndecidableError
from mlpfusion.stages.validate.judge.sweeps import rows_of, through_mlp


def mlp(tensors):
    """A gated MLP of relu, in the operands' own type."""
    x, wg, wu, wd = (tensors[name] for name in ("x", "wg", "wu", "wd"))
    return (torch.relu(x @ wg.T) * (x @ wu.T)) @ wd.T


@given(st.integers(0, 50), st.integers(1, 9))
def test_rows_hold_all_elements_and_zeros_behind_them(elements: int, columns: int) -> None:
    found = rows_of(torch.arange(1.0, elements + 1), columns)
    assert found.shape[1] == columns
    assert found.numel() - elements < columns
    flat = found.reshape(-1)
    assert flat[:elements].tolist() == list(range(1, elements + 1))
    assert not flat[elements:].any()


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=40), st.sampled_from([0.5, 1.0, 3.0]))
def test_each_gate_value_is_seen_by_the_activation_alone(values: list[float], up: float) -> None:
    found = through_mlp(torch.tensor(values), up, (8, 12), mlp)
    assert torch.equal(found.y, torch.relu(found.gate) * up)
    assert set(found.up.tolist()) == {up}
    assert len(found.y) == len(found.gate)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_would_spoil_its_row_or_may_be_taken_for_0_is_left_out(dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    gate = torch.tensor([0.0, 1.0, limits.max, -limits.max, limits.tiny], dtype=torch.float64).to(dtype)
    found = through_mlp(gate, 2.0, (8, 12), mlp)
    kept = [0.0, 1.0] + ([limits.tiny] if dtype is torch.float16 else [])
    assert found.gate.tolist() == kept
    assert bool(found.y.isfinite().all())


def test_a_result_of_another_shape_decides_nothing() -> None:
    with pytest.raises(UndecidableError, match=r"^it returns \(1, 4\) for x of \(1, 8\)$"):
        through_mlp(torch.ones(3), 1.0, (8, 12), lambda tensors: tensors["x"][:, :4])
