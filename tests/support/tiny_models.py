"""Tiny random Hugging Face models by family, built from configs: nothing is downloaded."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# Family: its module, the prefix of its classes, the head, and what its config needs beyond SIZES.
FAMILIES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "gemma": ("gemma", "Gemma", "ForCausalLM", {}),
    "gemma2": ("gemma2", "Gemma2", "ForCausalLM", {}),
    "gemma3_text": ("gemma3", "Gemma3", "ForCausalLM", {"config": "Gemma3TextConfig"}),
    "gemma3n": (
        "gemma3n",
        "Gemma3n",
        "ForCausalLM",
        {
            "config": "Gemma3nTextConfig",
            "vocab_size_per_layer_input": 64,
            "hidden_size_per_layer_input": 8,
            "laurel_rank": 4,
            "num_kv_shared_layers": 0,
            "activation_sparsity_pattern": [0.95, 0.0],
            "intermediate_size": [48, 48],
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "gemma4_text": (
        "gemma4",
        "Gemma4",
        "ForCausalLM",
        {
            "config": "Gemma4TextConfig",
            "vocab_size_per_layer_input": 64,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 0,
            "global_head_dim": 16,
        },
    ),
    "llama": ("llama", "Llama", "ForCausalLM", {}),
    "qwen2": ("qwen2", "Qwen2", "ForCausalLM", {}),
    "qwen3": ("qwen3", "Qwen3", "ForCausalLM", {}),
    "mistral": ("mistral", "Mistral", "ForCausalLM", {}),
    "phi3": ("phi3", "Phi3", "ForCausalLM", {}),
    "glm4": ("glm4", "Glm4", "ForCausalLM", {}),
    "moonshine": (
        "moonshine",
        "Moonshine",
        "ForConditionalGeneration",
        {
            "encoder_num_hidden_layers": 1,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 2,
            "decoder_num_attention_heads": 2,
            "encoder_num_key_value_heads": 2,
            "decoder_num_key_value_heads": 2,
            "decoder_start_token_id": 1,
        },
    ),
    "t5": (
        "t5",
        "T5",
        "ForConditionalGeneration",
        {
            "d_model": 32,
            "d_kv": 16,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 2,
            "feed_forward_proj": "gated-gelu",
            "decoder_start_token_id": 0,
        },
    ),
    "olmo2": ("olmo2", "Olmo2", "ForCausalLM", {}),
    "smollm3": ("smollm3", "SmolLM3", "ForCausalLM", {}),
    "granite": ("granite", "Granite", "ForCausalLM", {}),
    "lfm2": (
        "lfm2",
        "Lfm2",
        "ForCausalLM",
        {"block_auto_adjust_ff_dim": False, "layer_types": ["conv", "full_attention"]},
    ),
    "modernbert": ("modernbert", "ModernBert", "ForMaskedLM", {"global_attn_every_n_layers": 2}),
    "starcoder2": ("starcoder2", "Starcoder2", "ForCausalLM", {}),
    "gpt2": ("gpt2", "GPT2", "LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}),
    "nemotron": ("nemotron", "Nemotron", "ForCausalLM", {}),
    "bitnet": ("bitnet", "BitNet", "ForCausalLM", {}),
    "apertus": ("apertus", "Apertus", "ForCausalLM", {}),
    "falcon_h1": (
        "falcon_h1",
        "FalconH1",
        "ForCausalLM",
        {
            "mlp_multipliers": [0.5, 2.0],
            "mamba_d_ssm": 32,
            "mamba_n_heads": 2,
            "mamba_d_head": 16,
            "mamba_n_groups": 1,
            "mamba_d_state": 8,
        },
    ),
    "mixtral": ("mixtral", "Mixtral", "ForCausalLM", {"num_local_experts": 2, "num_experts_per_tok": 1}),
    "qwen3_moe": (
        "qwen3_moe",
        "Qwen3Moe",
        "ForCausalLM",
        {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16},
    ),
    "gpt_oss": ("gpt_oss", "GptOss", "ForCausalLM", {"num_local_experts": 2, "num_experts_per_tok": 1}),
}


def build(family: str, *, seed: int = 0, **changes: Any) -> nn.Module:
    """A random model of a family in eval mode, float32 on the CPU; `changes` go into its config."""
    folder, prefix, head, options = FAMILIES[family]
    options = {**options, **changes}
    configuration = importlib.import_module(f"transformers.models.{folder}.configuration_{folder}")
    modeling = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    config = getattr(configuration, options.pop("config", f"{prefix}Config"))(**{**SIZES, **options})
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model: nn.Module = getattr(modeling, f"{prefix}{head}")(config)
    return model.eval()


def skip_unless_picklable(model: nn.Module) -> None:
    """transformers 5.20, the newest for Python 3.10, hangs local classes of the library `kernels` into some models."""
    try:
        pickle.dumps(model)
    except AttributeError as error:
        pytest.skip(f"a model of this transformers cannot be pickled, swapped or not: {error}")


def inputs(family: str, *, batch: int = 2, seq: int = 7) -> dict[str, Tensor]:
    """Random inputs of such a model."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, SIZES["vocab_size"], (batch, seq), generator=generator)
    if family == "moonshine":
        return {"input_values": torch.randn(batch, 2000, generator=generator), "decoder_input_ids": ids}
    return {"input_ids": ids, "decoder_input_ids": ids} if family == "t5" else {"input_ids": ids}


def logits(model: nn.Module, family: str) -> Tensor:
    """Its logits [batch, seq, vocabulary] for these inputs."""
    with torch.no_grad():
        found: Tensor = model(**inputs(family)).logits
    return found
