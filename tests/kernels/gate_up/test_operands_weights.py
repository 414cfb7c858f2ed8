"""Weights that the kernels read in place, and why they cannot read others."""

from __future__ import annotations

import pytest
import torch
from mlpfusion_kernels import Weights
from mlpfusion_kernels.gate_up.operands import unreadable, with_adjacent_biases

D, H = 16, 32


def weights(**changes: torch.Tensor) -> Weights:
    made = Weights(torch.zeros(H, D), torch.zeros(H, D), torch.zeros(D, H))
    return made._replace(**changes)


def test_dense_weights_are_readable() -> None:
    assert unreadable(weights()) is None


def test_rows_may_lie_apart_by_multiples_of_16_bytes() -> None:
    assert unreadable(weights(gate=torch.zeros(H, D + 4)[:, :D])) is None
    assert "multiples of 16 bytes, got strides (17, 1)" in (
        unreadable(weights(gate=torch.zeros(H, D + 1)[:, :D])) or ""
    )


@pytest.mark.parametrize("name", ["gate", "up", "down"])
@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (lambda shape: torch.zeros(*reversed(shape)).t(), "must have rows of adjacent elements"),
        (lambda shape: torch.zeros(shape[1]).expand(*shape), "must have rows of adjacent elements"),
        (lambda shape: torch.zeros(shape[0] * shape[1] + 1)[1:].view(*shape), "must start at a multiple of 16 bytes"),
    ],
)
def test_others_are_named_with_the_reason(name: str, turn, says: str) -> None:
    shape = (D, H) if name == "down" else (H, D)
    found = unreadable(weights(**{name: turn(shape)})) or ""
    assert found.startswith(f"{name}_weight {says}")


def test_gate_and_up_need_a_memory_each() -> None:
    one = torch.zeros(H, D)
    assert unreadable(weights(gate=one, up=one)) == "gate_weight and up_weight share one memory"
    empty = torch.zeros(0, D)
    assert unreadable(weights(gate=empty, up=empty)) is None


def test_a_bias_with_gaps_is_copied_and_no_other() -> None:
    dense, gaps, repeats = torch.arange(H).float(), torch.arange(2.0 * H)[::2], torch.ones(1).expand(H)
    whole = weights(gate_bias=dense, up_bias=dense)
    assert with_adjacent_biases(whole) is whole
    assert with_adjacent_biases(weights())[3:] == (None, None, None)
    for odd in (gaps, repeats):
        found = with_adjacent_biases(weights(gate_bias=odd, up_bias=dense))
        assert found.gate_bias is not None
        assert torch.equal(found.gate_bias, odd)
        assert found.gate_bias.stride() == (1,)
        assert found.gate_bias.data_ptr() != odd.data_ptr()
