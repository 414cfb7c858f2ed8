"""Two parameters that lie next to each other are one tensor without a copy, as long as they are what they were."""

from __future__ import annotations

import pytest
import torch

from mlpfusion.backends.adjacent_weights import Pair, joined, joined_biases
from mlpfusion.errors import BackendUnavailableError


def two(*shape: int) -> tuple[torch.nn.Parameter, torch.nn.Parameter]:
    torch.manual_seed(0)
    return torch.nn.Parameter(torch.randn(*shape)), torch.nn.Parameter(torch.randn(*shape))


@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (5,)])
def test_a_pair_keeps_its_values_and_shares_its_memory(shape: tuple[int, ...]) -> None:
    first, second = two(*shape)
    values = torch.cat((first.detach(), second.detach()))
    both = Pair("mine", first, second).joined(first, second)
    assert torch.equal(both, values)
    assert (both.data_ptr(), both.requires_grad) == (first.data_ptr(), False)
    with torch.no_grad():
        second.add_(1)
    assert torch.equal(both[shape[0] :], second)


def test_what_is_adjacent_already_is_not_moved() -> None:
    first, second = two(4, 3)
    Pair("mine", first, second)
    place = first.data_ptr()
    Pair("mine", first, second)
    assert first.data_ptr() == place


def replaced(first: torch.nn.Parameter) -> None:
    first.data = first.data.clone()


def turned(first: torch.nn.Parameter) -> None:
    first.data = first.data.t()


def cast(first: torch.nn.Parameter) -> None:
    first.data = first.data.double()


@pytest.mark.parametrize("change", [replaced, turned, cast])
def test_a_parameter_that_changed_is_refused_with_what_to_do(change) -> None:
    first, second = two(4, 4)
    pair = Pair("mine", first, second)
    change(first)
    with pytest.raises(
        BackendUnavailableError, match="the weights of gate_proj and up_proj are new or changed"
    ) as caught:
        pair.joined(first, second)
    assert "set_backend('mine')" in str(caught.value)


def test_parameters_that_do_not_touch_are_not_one() -> None:
    first, second = two(5)
    with pytest.raises(BackendUnavailableError, match="the biases of gate_proj and up_proj"):
        joined("mine", first, second)


def test_what_must_not_be_parted_is_refused() -> None:
    shared = torch.nn.Parameter(torch.randn(4, 3))
    with pytest.raises(BackendUnavailableError, match="share one weight"):
        Pair("mine", shared, shared)
    flat = torch.randn(100)
    first, second = (torch.nn.Parameter(flat[place : place + 12].view(4, 3)) for place in (0, 50))
    with pytest.raises(BackendUnavailableError, match="part of a larger buffer"):
        Pair("mine", first, second)


def test_biases_are_both_there_or_neither() -> None:
    first, second = two(5)
    assert joined_biases("mine", None, None) is None
    for given, has in (((first, None), "gate_proj"), ((None, second), "up_proj")):
        with pytest.raises(BackendUnavailableError, match=f"only one of gate_proj and up_proj has a bias, {has}"):
            joined_biases("mine", *given)
    pair = Pair("mine", first, second)
    assert torch.equal(joined_biases("mine", first, second, pair), joined_biases("mine", first, second))
