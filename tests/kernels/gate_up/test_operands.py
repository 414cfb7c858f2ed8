"""Which layouts the kernels read as they are, which are copied, and how far two weights may lie apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from mlpfusion_kernels import Weights, unreadable
from mlpfusion_kernels.gate_up.operands import aligned, distance
from support import rings
from support.flat_weights import flat_weights
from torch import Tensor


@settings(max_examples=rings.examples(200))
@given(flat_weights())
def test_the_distance_leads_from_one_weight_to_the_other_whichever_is_first(
    found: tuple[Tensor, Tensor, Tensor],
) -> None:
    gate, up, down = found
    if unreadable(Weights(gate, up, down)) is not None:
        return
    apart = distance(gate, up)
    if apart is None:
        assert gate.stride() != up.stride()
        return
    assert distance(up, gate) == -apart
    assert apart * gate.element_size() % 16 == 0
    first, second = (gate, up) if apart > 0 else (up, gate)
    both = first.as_strided((2, *first.shape), (abs(apart), *first.stride()), first.storage_offset())
    assert torch.equal(both[0], first)
    assert torch.equal(both[1], second)


class Far:
    """What `distance` asks of a weight."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address

    def stride(self) -> tuple[int, int]:
        return 16, 1

    def element_size(self) -> int:
        return 2


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("length", "fits"), [(5 << 30, True), ((1 << 40) - 16, True), (1 << 40, False)])
def test_a_distance_is_exact_beyond_32_bits_and_bounded_by_what_a_descriptor_holds(
    length: int, fits: bool, sign: int
) -> None:
    ends: Any = [Far(1 << 42), Far((1 << 42) + sign * length)]
    assert distance(*ends) == (sign * length // 2 if fits else None)


@pytest.mark.parametrize(("offset", "stride", "copied"), [(0, 16, False), (8, 16, False), (3, 16, True), (0, 24, True)])
def test_what_was_saved_is_copied_only_where_it_is_not_whole_or_not_aligned(offset, stride, copied) -> None:
    memory = torch.arange(256.0).to(torch.float16)
    saved = memory.as_strided((5, 16), (stride, 1), offset)
    found = aligned(saved)
    assert (found is not saved) == copied
    assert torch.equal(found, saved)
    assert found.is_contiguous()
    assert found.data_ptr() % 16 == 0
