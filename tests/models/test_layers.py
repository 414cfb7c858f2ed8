"""The layers of a module, and the ways to see them as gate, up and down."""

from __future__ import annotations

from support.plain_mlp import Plain
from torch import nn

from mlpfusion.models import layers


def test_layers_are_a_modules_own_or_of_several_parts() -> None:
    assert list(layers.linears(Plain())) == ["c", "a", "b"]
    assert not layers.linears(nn.Sequential(Plain()))  # a module around an MLP is none
    nested = nn.ModuleDict({"up": nn.Sequential(nn.Linear(8, 24)), "down": nn.Linear(12, 8)})
    assert layers.linears(nested) == {"up.0": (24, 8), "down": (8, 12)}


def test_shrunk_sizes_stay_equal_double_or_different() -> None:
    assert layers.shrunk({"a": (96, 32), "b": (32, 48)}, 24) == {"a": (82, 24), "b": (24, 41)}
