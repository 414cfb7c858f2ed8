"""Tensors of two models compared: errors, divergence, and that a tensor of zeros forgives nothing."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings

from mlpfusion.errors import MeasurementError
from mlpfusion.stages.prove import compare

pytest.importorskip("transformers")


@settings(max_examples=rings.examples(40))
@given(st.integers(1, 400), st.integers(1, 500), st.integers(0, 2**16))
def test_slices_make_no_difference(elements: int, piece: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, elements, generator=generator)
    wide = b.double()
    relative = (a.double() - wide).abs() / wide.abs().clamp_min(wide.square().mean().sqrt())
    kept, compare._SLICE = compare._SLICE, piece  # type: ignore[misc]
    try:
        found = compare.errors(a, b).deviation
    finally:
        compare._SLICE = kept  # type: ignore[misc]
    assert found.max_error == pytest.approx(relative.max().item())
    assert found.rms_error == pytest.approx(relative.square().mean().sqrt().item())


def test_divergence_is_that_of_the_distributions() -> None:
    p, q = torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, math.log(3)], [1.0, 0.0]])
    found = compare.divergence(p, q)
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert found.largest == pytest.approx(expected, rel=1e-6)
    assert found.mean == pytest.approx(expected / 2, rel=1e-6)
    assert found.top1 == 0.5


def test_a_tensor_of_zeros_forgives_nothing() -> None:
    zeros = torch.zeros(4)
    assert compare.errors(zeros, zeros).deviation.max_error == 0
    assert compare.errors(zeros + 1e-9, zeros).deviation.max_error is None
    with pytest.raises(MeasurementError, match="unswapped model itself gives nan or inf"):
        compare.judged(compare.errors(zeros, zeros), compare.errors(zeros * math.nan, zeros), width=1)
    with pytest.raises(ValueError, match="shape"):
        compare.errors(zeros, torch.zeros(3))
