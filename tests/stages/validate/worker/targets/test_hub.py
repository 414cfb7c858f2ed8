"""Which functions and layers of a Hub kernel may be targets: its helpers are none."""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn

from mlpfusion.errors import UsageError
from mlpfusion.stages.validate.worker.targets import hub as hub_targets


def test_the_kernels_of_this_project_are_what_its_hub_tree_has() -> None:
    import mlpfusion_kernels

    names = hub_targets.target_names(mlpfusion_kernels)
    assert [name for name in names if not name.startswith("layers.")] == ["act_mul", "act_mul_reference"]
    assert all(name.endswith("MLP") for name in names[2:])


def kernel(text: str) -> types.ModuleType:
    """A package with this text, as one that was loaded."""
    made = types.ModuleType("mine")
    exec(compile(text, "mine", "exec"), vars(made))
    return made


KERNELS = """
def act(gate, up): return gate * up
def takes_activation(gate, up, activation): return gate * up
def mlp(x, gate_weight, up_weight, down_weight): return x
def pad_to(n, multiple): return n
def one(x): return x
def _hidden(gate, up): return gate * up
"""


def test_helpers_and_hidden_functions_are_no_targets() -> None:
    assert hub_targets.target_names(kernel(KERNELS)) == ["act", "takes_activation", "mlp"]


def test_what_is_public_is_all_there_is() -> None:
    assert hub_targets.target_names(kernel(KERNELS + "__all__ = ['mlp', 'pad_to']\n")) == ["mlp"]


def test_functions_of_others_are_not_its_own() -> None:
    made = kernel(KERNELS)
    vars(made)["borrowed"] = torch.nn.functional.cosine_similarity
    assert "borrowed" not in hub_targets.target_names(made)


def test_layers_are_named_below_their_module() -> None:
    class Layer(nn.Module):
        def forward(self, hidden_states):
            return hidden_states

    class Other(nn.Module):
        def forward(self, ids, mask):
            return ids

    made = kernel("")
    vars(made)["layers"] = layers = types.ModuleType("mine.layers")
    vars(layers).update(Layer=Layer, Other=Other, _Hidden=Layer, number=3)
    assert hub_targets.target_names(made) == ["layers.Layer"]


def test_a_folder_that_is_none_is_one_line(tmp_path) -> None:
    with pytest.raises(
        UsageError, match=r"is no Hub kernel: it has no torch-ext/NAME/__init__.py and no build that fits"
    ):
        hub_targets.load_kernel(tmp_path)
