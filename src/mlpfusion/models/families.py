"""The MLP fields of Hugging Face configurations by model type, with the library's defaults."""

from __future__ import annotations

from typing import Final, NamedTuple


class Family(NamedTuple):
    """Where a model type keeps its MLP's sizes, activation and bias, and what each is where the file leaves it out.

    The defaults are those of the type's configuration class in transformers 5.23.
    """

    hidden_size: int
    intermediate_size: int
    activation: str = "silu"
    activation_key: str = "hidden_act"
    hidden_key: str = "hidden_size"
    intermediate_key: str = "intermediate_size"
    bias_key: str | None = None
    bias: bool = False
    dropout_key: str | None = None  # dropout between act·mul and down, in training
    dropout: float = 0.0


def _gemma(hidden: int, intermediate: int) -> Family:
    return Family(hidden, intermediate, "gelu_pytorch_tanh", "hidden_activation")


def _t5(hidden: int, intermediate: int, projection: str) -> Family:
    return Family(
        hidden,
        intermediate,
        projection,
        "feed_forward_proj",
        "d_model",
        "d_ff",
        dropout_key="dropout_rate",
        dropout=0.1,
    )


FAMILIES: Final[dict[str, Family]] = {
    "gemma": Family(3072, 24576, "gelu_pytorch_tanh"),
    "gemma2": _gemma(2304, 9216),
    "gemma3_text": _gemma(2304, 9216),
    "gemma3n_text": _gemma(2048, 16384),
    "gemma4_text": _gemma(2304, 9216),
    "vaultgemma": _gemma(2304, 9216),
    "t5": _t5(512, 2048, "relu"),
    "mt5": _t5(512, 1024, "gated-gelu"),
    "umt5": _t5(512, 1024, "gated-gelu"),
    "longt5": _t5(512, 2048, "relu"),
    "llama": Family(4096, 11008, bias_key="mlp_bias"),
    "mllama_text_model": Family(4096, 14336),
    "mistral": Family(4096, 14336),
    "ministral": Family(4096, 14336),
    "qwen2": Family(4096, 22016),
    "qwen2_vl_text": Family(8192, 29568),
    "qwen2_5_vl_text": Family(8192, 29568),
    "qwen3": Family(4096, 22016),
    "qwen3_vl_text": Family(4096, 22016),
    "phi3": Family(3072, 8192),
    "glm": Family(4096, 13696),
    "glm4": Family(4096, 13696),
    "olmo": Family(4096, 11008),
    "olmo2": Family(4096, 11008),
    "olmo3": Family(4096, 11008),
    "smollm3": Family(2048, 11008, bias_key="mlp_bias"),
    "granite": Family(4096, 11008, bias_key="mlp_bias"),
    "helium": Family(2560, 7040, bias_key="mlp_bias"),
    "cohere": Family(8192, 22528),
    "cohere2": Family(8192, 22528),
    "stablelm": Family(2560, 6912),
    "ernie4_5": Family(1024, 3072, bias_key="use_bias"),
    "hunyuan_v1_dense": Family(4096, 11008),
    "falcon_h1": Family(4096, 14336, bias_key="mlp_bias"),
    "lfm2": Family(2560, 12288, activation_key=""),  # silu, whatever the file says
    "modernbert": Family(768, 1152, "gelu", "hidden_activation", bias_key="mlp_bias", dropout_key="mlp_dropout"),
}

# What the language model inside a model of several parts is, where its own part does not say.
TEXT_OF: Final = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "idefics3": "llama",
    "llava": "llama",
    "mistral3": "mistral",
    "mllama": "mllama_text_model",
    "paligemma": "gemma",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "shieldgemma2": "gemma3_text",
    "smolvlm": "llama",
}
# Of these there are older files without a part of its own for the language model.
FLAT: Final = ("qwen2_5_vl", "qwen2_vl")

_NOT_GATED: Final = "its MLP is not gated: one product, the activation, one product"
_EXPERTS: Final = "its MLPs are experts behind a router, not one gated MLP"
REFUSED: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "apertus",
            "arcee",
            "bart",
            "bert",
            "bloom",
            "distilbert",
            "falcon",
            "gpt2",
            "gpt_bigcode",
            "gpt_neo",
            "gpt_neox",
            "gptj",
            "mpt",
            "nanochat",
            "nemotron",
            "opt",
            "persimmon",
            "phi",
            "roberta",
            "starcoder2",
            "whisper",
        ),
        _NOT_GATED,
    ),
    **dict.fromkeys(
        (
            "dbrx",
            "deepseek_v2",
            "deepseek_v3",
            "dots1",
            "gpt_oss",
            "granitemoe",
            "jamba",
            "llama4",
            "llama4_text",
            "mixtral",
            "olmoe",
            "phimoe",
            "qwen2_moe",
            "qwen3_moe",
            "switch_transformers",
        ),
        _EXPERTS,
    ),
    "bitnet": "extra maths: a norm between act·mul and down",
}
# A positive number under one of these says that there is a router.
EXPERT_KEYS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
EXPERTS: Final = _EXPERTS
