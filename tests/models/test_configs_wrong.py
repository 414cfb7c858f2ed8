"""One value of a configuration that is wrong: it is named in one line, whatever the model type and the value."""

from __future__ import annotations

import json

import pytest

from mlpfusion.errors import UsageError
from mlpfusion.models import configs, known
from mlpfusion.models.families import EXPERT_KEYS, FAMILIES, TEXT_OF

INF, NAN = float("inf"), float("nan")
LEAVES = [
    None,
    True,
    False,
    0,
    1,
    -3,
    16,
    2**70,
    0.5,
    -0.5,
    INF,
    NAN,
    "",
    "8",
    "gelu",
    "bfloat16",
    {},
    {"model_type": []},
]
VALUES = [*LEAVES, [], *([leaf] for leaf in LEAVES), *([leaf, leaf] for leaf in LEAVES)]
KEYS = sorted(
    {key for family in FAMILIES.values() for key in family if isinstance(key, str) and "_" in key}
    | {"dtype", "torch_dtype", "text_config", "model_type", "num_hidden_layers", "mlp_multipliers", "block_multiple_of"}
    | {"block_ffn_dim_multiplier", "block_ff_dim", "block_auto_adjust_ff_dim", "activation_sparsity_pattern"}
    | {"use_double_wide_mlp", "enable_moe_block", "quantization_config", *EXPERT_KEYS}
)


def parsed(config):
    return configs.parse(config, name="model", source="config.json", dtype="float32")


@pytest.mark.parametrize("kind", [*FAMILIES, *TEXT_OF])
def test_it_is_read_or_refused_in_one_line(kind):
    for key in KEYS:
        for value in VALUES:
            config = {"model_type": kind, key: value}
            if kind in TEXT_OF and key not in {"text_config", "model_type"}:
                config = {"model_type": kind, "text_config": {key: value}}
            try:
                model = parsed(config)
            except UsageError as error:
                assert len(str(error).splitlines()) == 1  # noqa: PT017
                assert len(str(error)) < 1500  # noqa: PT017
            else:
                assert model.spec.intermediate_size > 0


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "falcon_h1", "mlp_multipliers": 3}, "mlp_multipliers must be two numbers, got 3"),
        ({"model_type": "falcon_h1", "mlp_multipliers": [1.0]}, r"mlp_multipliers must be two numbers, got \[1.0\]"),
        ({"model_type": "lfm2", "block_ffn_dim_multiplier": "x"}, "block_ffn_dim_multiplier must be a positive number"),
        ({"model_type": "lfm2", "block_ffn_dim_multiplier": INF}, "block_ffn_dim_multiplier must be a positive number"),
        (
            {"model_type": "gemma3n_text", "activation_sparsity_pattern": 0.5},
            "activation_sparsity_pattern must be a li",
        ),
        ({"model_type": "gemma3n_text", "activation_sparsity_pattern": [0.9, 0.9]}, "all its layers drop activations"),
        ({"model_type": "gemma3n_text", "intermediate_size": []}, r"intermediate_size must not be empty"),
        ({"model_type": "gemma3", "text_config": {"model_type": ["x"]}}, r"model_type \['x'\] of its text_config"),
        ({"model_type": 3}, "model_type must be a name, got 3"),
        ({"model_type": "llama", "num_local_experts": "8"}, "num_local_experts must be an integer, got '8'"),
        ({"model_type": "modernbert", "mlp_dropout": "x"}, "mlp_dropout must be a number, got 'x'"),
    ],
)
def test_what_is_said(config, said):
    with pytest.raises(UsageError, match=said):
        parsed(config)


def test_the_first_layers_of_a_gemma_3n_are_sparse_if_the_file_says_nothing():
    said = "10 layers drop activations"
    assert any(said in note for note in parsed({"model_type": "gemma3n_text"}).notes)
    assert not any(said in note for note in parsed({"model_type": "gemma3n_text", "num_hidden_layers": 4}).notes)


def test_numbers_that_the_library_writes_and_json_does_not_have_are_read(tmp_path):
    config = {"model_type": "falcon_h1", "time_step_limit": [0.0, INF], "dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert known.find(tmp_path).spec.intermediate_size == 14336
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": NaN, "dtype": "bfloat16"}', encoding="utf-8"
    )
    with pytest.raises(UsageError, match=r"hidden_size.* got float .value: nan"):
        known.find(tmp_path)
