"""What transformers itself builds of a configuration, where it is installed."""

from __future__ import annotations

import importlib
import os

import pytest

from mlpfusion.models import configs


def parsed(config, **options):
    return configs.parse(config, name="model", source="config.json", **options)


def library():
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    pytest.importorskip("transformers", reason="compares with transformers where it is installed")
    from transformers import CONFIG_MAPPING, AutoModel

    return CONFIG_MAPPING, AutoModel


# Where the whole model is not needed, or cannot be built from a configuration of defaults.
ALONE = {
    "gemma3n_text": ("gemma3n", "Gemma3nTextMLP"),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", "HunYuanDenseV1MLP"),
    "ministral": ("ministral", "MinistralMLP"),
    "mllama_text_model": ("mllama", "MllamaTextMLP"),
}


def built_mlp(auto_model, kind, config):
    """The first gated MLP that the library builds: the module, hidden and inner size, whether it has biases."""
    import torch
    from torch import nn

    with torch.device("meta"):
        if kind in ALONE:
            folder, name = ALONE[kind]
            model = getattr(importlib.import_module(f"transformers.models.{folder}.modeling_{folder}"), name)(config)
        else:
            model = auto_model.from_config(config)
    for module in model.modules():
        linears = [child for child in module.children() if type(child) is nn.Linear]
        shapes = [tuple(one.weight.shape) for one in linears]
        if len(linears) == 3 and len({tuple(sorted(shape)) for shape in shapes}) == 1 and len(set(shapes)) == 2:
            up = next(one for one, shape in zip(linears, shapes, strict=True) if shapes.count(shape) == 2)
            return module, up.in_features, up.out_features, up.bias is not None
        if len(linears) == 2 and linears[0].out_features == 2 * linears[1].in_features:
            return module, linears[0].in_features, linears[1].in_features, linears[0].bias is not None
    raise AssertionError("the library built no gated MLP")


def activation_of(module):
    for name in ("act_fn", "activation_fn", "act"):
        if hasattr(module, name):
            return getattr(module, name)
    return None


def agrees_with_the_library(kind, changes):
    import torch

    from mlpfusion.backends.eager import activation_function

    mapping, auto_model = library()
    config = mapping[kind](**changes)
    if kind == "gemma" and config.hidden_act == "gelu":
        pytest.skip("this transformers takes Gemma's legacy gelu by its word; later ones run gelu_tanh")
    module, hidden, inner, bias = built_mlp(auto_model, kind, config)
    mine = parsed({"model_type": kind, **changes}, dtype="float32").spec
    assert (mine.hidden_size, mine.intermediate_size, mine.bias) == (hidden, inner, bias)
    theirs = activation_of(module)
    if theirs is not None:
        x = torch.linspace(-4, 4, 33, dtype=torch.float64)
        torch.testing.assert_close(activation_function(mine.activation)(x), theirs(x), rtol=1e-9, atol=1e-12)


FEW = {"num_hidden_layers": 2}
