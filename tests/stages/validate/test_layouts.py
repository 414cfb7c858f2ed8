"""Layouts of operands: values stay, memory is not dense."""

from __future__ import annotations

import pytest
import torch

from mlpfusion.stages.validate.layouts import BUFFERS, DIMENSIONS, LAYOUTS, PACKINGS, halves, in_one_buffer


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_keep_values_and_are_not_dense(layout: str) -> None:
    x = torch.arange(2048.0).view(DIMENSIONS.get(layout, (8, 256)))
    laid = LAYOUTS[layout](x)
    if layout == "expanded":
        assert torch.equal(laid, x[:1].expand(8, 256))
    elif layout == "expanded along its last dimension":
        assert torch.equal(laid, x[:, :1].expand(8, 256))
    elif layout == "expanded along the first of three dimensions":
        assert torch.equal(laid, x[:1].expand(x.shape))
        assert laid.stride() == (0, 256, 1)
    elif layout == "expanded along the second of three dimensions":
        assert torch.equal(laid, x[:, :1].expand(x.shape))
        assert laid.stride() == (256, 0, 1)
    elif layout == "with overlapping rows":
        assert torch.equal(laid[1:, :128], laid[:-1, 128:])
        assert laid.stride() == (128, 1)
    elif layout == "one row of stride 1":
        assert torch.equal(laid, x[:1])
        assert laid.stride(0) == 1
    else:
        assert torch.equal(laid, x)
    if layout == "the last of several tokens":
        assert laid.stride() == (3 * 256, 256, 1)
        return  # whose stride along one token says nothing
    assert not (laid.is_contiguous() and laid.storage_offset() == 0) or layout == "one row of stride 1"


def test_halves_of_one_tensor_share_it() -> None:
    gate, up = torch.arange(6.0).view(2, 3), torch.arange(6.0, 12.0).view(2, 3)
    first, second = halves(gate, up)
    assert torch.equal(first, gate)
    assert torch.equal(second, up)
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert first.stride() == second.stride() == (6, 1)


@pytest.mark.parametrize("kind", BUFFERS)
def test_parts_of_one_buffer_are_dense_and_as_far_apart_as_it_says(kind: str) -> None:
    order, gap = BUFFERS[kind]
    made = (torch.arange(6.0).view(2, 3), torch.arange(8.0).view(4, 2), torch.ones(5))
    placed = in_one_buffer(made, kind)
    for value, part in zip(made, placed, strict=True):
        assert torch.equal(value, part)
        assert part.is_contiguous()
    assert len({part.untyped_storage().data_ptr() for part in placed}) == 1
    starts = [part.storage_offset() for part in placed]
    assert starts == ([0, 6 + gap, 14 + 2 * gap] if order == 1 else [13 + 2 * gap, 5 + gap, 0])


@pytest.mark.parametrize("kind", PACKINGS)
def test_gate_and_up_are_one_tensor_without_gaps_that_begins_with_the_one_that_is_said(kind: str) -> None:
    shape = DIMENSIONS.get(kind, (8, 256))
    gate, up = torch.arange(2048.0).view(shape), torch.arange(2048.0, 4096.0).view(shape)
    first, second = PACKINGS[kind](gate, up)
    assert torch.equal(first, gate)
    assert torch.equal(second, up)
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert first.untyped_storage().nbytes() == 4096 * 4
    assert first.stride()[-1] == second.stride()[-1] == (2 if "turns" in kind else 1)
    assert (first.storage_offset() > second.storage_offset()) == ("up first" in kind)
