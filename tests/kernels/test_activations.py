"""Activations of the kernels in PyTorch's words: values as PyTorch's own, derivatives as autograd's."""

from __future__ import annotations

import pytest
import torch
from mlpfusion_kernels.activations import (
    ACTIVATIONS,
    activate_backward_reference,
    activate_reference,
    unknown_activation,
)

from mlpfusion.backends.eager import FUNCTIONS
from mlpfusion.spec import ACTIVATIONS as OURS

EACH = pytest.mark.parametrize("activation", ACTIVATIONS)
# Without the kink at 0, where a derivative is a convention.
GATES = torch.cat((torch.linspace(-30, -1e-3, 500), torch.linspace(1e-3, 30, 500)))


def test_the_kernels_have_every_activation_of_a_spec() -> None:
    assert set(ACTIVATIONS) == set(OURS)


@EACH
def test_values_are_pytorchs(activation: str) -> None:
    found = activate_reference(GATES, activation)
    right = FUNCTIONS[activation](GATES.double()).float()
    torch.testing.assert_close(found, right, rtol=2e-6, atol=2e-6)


@EACH
def test_derivatives_are_autograds(activation: str) -> None:
    gate = GATES.double().requires_grad_()
    (slope,) = torch.autograd.grad(FUNCTIONS[activation](gate).sum(), gate)
    found = activate_backward_reference(GATES, torch.ones_like(GATES), activation)
    torch.testing.assert_close(found, slope.float(), rtol=1e-5, atol=1e-5)
    scaled = activate_backward_reference(GATES, torch.full_like(GATES, -2.0), activation)
    torch.testing.assert_close(scaled, -2 * found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wrong", ["tanh", "", None, 3])
def test_an_unknown_one_is_named_with_the_valid_ones(wrong: object) -> None:
    said = unknown_activation(wrong)
    assert repr(wrong) in said
    assert all(name in said for name in ACTIVATIONS)
