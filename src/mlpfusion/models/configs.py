"""Reads the gated MLP of a Hugging Face config.json as transformers builds it, by it or without it, or refuses it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion import limits, spec
from mlpfusion.errors import UsageError, nearest
from mlpfusion.models import built
from mlpfusion.models.families import EXPERT_KEYS, EXPERTS, FAMILIES, FLAT, REFUSED, TEXT_OF, Family
from mlpfusion.records.choice import Model
from mlpfusion.storage import inputs

if TYPE_CHECKING:
    import os

CONFIG: Final = "config.json"
_MOST_BYTES: Final = 2**24
Config = dict[str, Any]


def read(path: str | os.PathLike[str], *, dtype: spec.Dtype | None = None) -> Model:
    """The MLP of a `config.json`, of the one in a directory, or of stdin for `-`; `dtype` instead of the file's.

    Raises:
        UsageError: no such file or no JSON; a model type that is not known; a model without one gated MLP that the
            backends compute, such as experts, quantised weights or extra maths; no dtype anywhere.
    """
    piped = inputs.is_stdin(path)
    file = Path("stdin") if piped else Path(path)
    file = file / CONFIG if not piped and file.is_dir() else file
    shown = f"model configuration {str(file)!r}"
    try:
        # Python's own reader, as the library's: some files have Infinity, which JSON has not.
        raw = json.loads(inputs.read("model configuration", path if piped else file, _MOST_BYTES))
    except UsageError:
        raise
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown} is not JSON, or cut short: {error}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"{shown} is no object of names and values")
    name = file.resolve().parent.name if file.name == CONFIG else file.stem
    try:
        return _by_library_or_names(raw, name, file.name, dtype)
    except UsageError as error:
        raise UsageError(f"{shown}: {error}") from None


def _by_library_or_names(raw: Config, name: str, source: str, dtype: spec.Dtype | None) -> Model:
    """As transformers builds it or, where that is not here, by the names of its values."""
    lacking = built.lacking()
    if lacking is not None:
        found = parse(raw, name=name, source=source, dtype=dtype)
        return msgspec.structs.replace(found, notes=(*found.notes, f"read by its names alone, as {lacking}"))
    _check(raw)
    inner = raw.get("text_config")
    return built.parse(
        raw, name=name, source=source, dtype=dtype or _dtype(raw, inner if isinstance(inner, dict) else {})
    )


def _check(raw: Config) -> None:
    """Raise a UsageError for what no reader takes."""
    for values in (raw, raw.get("text_config")):
        if isinstance(values, dict) and values.get("quantization_config"):
            raise UsageError("its weights are quantised (quantization_config); the backends take plain ones")
    kind = raw.get("model_type")
    if kind is None or kind == "":
        raise UsageError("it has no model_type")
    if not isinstance(kind, str):
        raise UsageError(f"model_type must be a name, got {kind!r}")


def parse(raw: Config, *, name: str, source: str, dtype: spec.Dtype | None = None) -> Model:
    """The MLP of a configuration's values by their names, as transformers reads them; errors are as of `read`."""
    _check(raw)
    kind, config, notes = _language_model(raw)
    _check_kind(kind, config)
    family = FAMILIES[kind]
    hidden = _size(config, family.hidden_key, family.hidden_size, notes)
    intermediate = _intermediate(kind, config, family, notes)
    made = spec.MLPSpec(
        hidden_size=hidden,
        intermediate_size=intermediate,
        activation=_activation(kind, config, family, notes),
        dtype=dtype or _dtype(raw, config),
        bias=_bias(config, family),
    )
    if family.activation_key == "feed_forward_proj" and made.dtype == "float16":
        raise UsageError("in float16 the library keeps wo in float32; its three projections have two dtypes")
    return Model(
        name=name, source=source, spec=made, notes=tuple(notes), inference_only=_inference_only(config, family)
    )


# ---- which part, and whether it can be one of ours -------------------------------------------------------------------


def _language_model(raw: Config) -> tuple[str, Config, list[str]]:
    """The model type and the values of the language model, which may be a part of the file."""
    kind = raw["model_type"]
    text = raw.get("text_config")
    if kind not in TEXT_OF:
        if isinstance(text, dict) and kind not in REFUSED:
            raise UsageError(f"model_type {kind!r}, of several parts, is not known; {nearest(kind, TEXT_OF)}")
        return kind, raw, []
    if text is None and kind in FLAT and "hidden_size" in raw:
        return TEXT_OF[kind], raw, []
    if text is not None and not isinstance(text, dict):
        raise UsageError(f"text_config must be an object, got {text!r}")
    inner = dict(text or {})
    found = inner.get("model_type") or TEXT_OF[kind]
    if not isinstance(found, str):
        raise UsageError(f"model_type {found!r} of its text_config is no name")
    if found in TEXT_OF and found == kind:  # older files repeat the name of the whole
        found = TEXT_OF[kind]
    return found, inner, [f"its language model is {found}"]


def _check_kind(kind: str, config: Config) -> None:
    if kind in REFUSED:
        raise UsageError(f"model_type {kind!r}: {REFUSED[kind]}")
    if kind not in FAMILIES:
        raise UsageError(
            f"model_type {kind!r} is not known; {nearest(kind, FAMILIES)}; or give the sizes by "
            "--hidden-size, --intermediate-size and --activation"
        )
    for key in EXPERT_KEYS:
        if not isinstance(config.get(key, 0), int | None):
            raise UsageError(f"{key} must be an integer, got {config[key]!r}")
    routed = [key for key in EXPERT_KEYS if (config.get(key) or 0) > 0]
    if routed or config.get("enable_moe_block"):
        raise UsageError(f"{routed[0] if routed else 'enable_moe_block'} says that {EXPERTS}")
    multipliers = config.get("mlp_multipliers")
    if kind != "falcon_h1" or multipliers is None:
        return
    if not isinstance(multipliers, list) or len(multipliers) != 2 or not all(map(_is_number, multipliers)):
        raise UsageError(f"mlp_multipliers must be two numbers, got {multipliers!r}")
    if multipliers != [1, 1]:
        raise UsageError(f"extra maths: mlp_multipliers {multipliers}; the backends support only 1")


# ---- single values ---------------------------------------------------------------------------------------------------


def _size(config: Config, key: str, default: int, notes: list[str]) -> int:
    if config.get(key) is None:
        notes.append(f"{key} is not in the file: {default}, the library's default")
        return default
    return limits.whole(key, config[key], limits.SIZE)


def _intermediate(kind: str, config: Config, family: Family, notes: list[str]) -> int:
    key = family.intermediate_key
    if kind == "lfm2":
        return _lfm2(config, family, notes)
    value = config.get(key)
    if kind == "gemma3n_text":
        _note_sparse(config, notes)
        if isinstance(value, list):
            if not value:
                raise UsageError(f"{key} must not be empty")
            if len(set(map(str, value))) != 1:
                raise UsageError(
                    f"its layers have several sizes, {key} {sorted(set(map(str, value)))}; "
                    "give one by --hidden-size and --intermediate-size"
                )
            return limits.whole(key, value[0], limits.SIZE)
    if config.get("use_double_wide_mlp"):
        notes.append("use_double_wide_mlp: layers that share keys and values are twice as wide; this is the others")
    return _size(config, key, family.intermediate_size, notes)


def _note_sparse(config: Config, notes: list[str]) -> None:
    """Say how many layers of a Gemma 3n drop activations; by the library's default the first ten of more than ten."""
    key = "activation_sparsity_pattern"
    shares = config.get(key)
    if shares is None:
        layers = _size(config, "num_hidden_layers", 35, [])
        sparse = 10 if layers > 10 else 0
    elif isinstance(shares, list) and all(map(_is_number, shares)):
        layers, sparse = len(shares), sum(share > 0 for share in shares)
    else:
        raise UsageError(f"{key} must be a list of numbers, got {shares!r}")
    if sparse and sparse == layers:
        raise UsageError(f"all its layers drop activations ({key}); the backends do not")
    if sparse:
        notes.append(f"{sparse} layers drop activations ({key}); they keep their own MLP")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lfm2(config: Config, family: Family, notes: list[str]) -> int:
    """The width that the library computes: two thirds, times a factor, rounded up to a multiple."""
    key = "block_ff_dim" if "block_ff_dim" in config else family.intermediate_key
    width = _size(config, key, family.intermediate_size, notes)
    if not config.get("block_auto_adjust_ff_dim", True):
        return width
    factor, multiple = config.get("block_ffn_dim_multiplier", 1.0), config.get("block_multiple_of", 256)
    width = int(2 * width / 3)
    if factor is not None:
        if not _is_number(factor) or not 0 < factor < math.inf:
            raise UsageError(f"block_ffn_dim_multiplier must be a positive number, got {factor!r}")
        multiple = limits.whole("block_multiple_of", multiple, limits.SIZE)
        width = -(-int(factor * width) // multiple) * multiple
    return width


def _activation(kind: str, config: Config, family: Family, notes: list[str]) -> spec.Activation:
    key = family.activation_key
    if not key:
        return "silu"
    value = config.get(key)
    if value is None:
        value = family.activation
        notes.append(f"{key} is not in the file: {value!r}, the library's default")
    other = {"hidden_act": "hidden_activation", "hidden_activation": "hidden_act"}.get(key)
    if other and config.get(other) not in (None, value):
        notes.append(f"{other} {config[other]!r} is ignored: the library reads {key} {value!r}")
    if key == "feed_forward_proj":
        return _gated_projection(value)
    if kind == "gemma" and value == "gelu":
        notes.append("hidden_act 'gelu' of a first Gemma stands for tanh-GELU, which the library runs")
        return "gelu_tanh"
    return spec.parse_activation(value)


def _gated_projection(value: object) -> spec.Activation:
    """T5's `feed_forward_proj`: "gated-gelu" is tanh-GELU, "gated-" and another name is that one."""
    if not isinstance(value, str) or not value.startswith("gated-"):
        raise UsageError(f"its MLP is not gated: feed_forward_proj {value!r}; valid: gated-gelu and the like")
    return "gelu_tanh" if value == "gated-gelu" else spec.parse_activation(value.removeprefix("gated-"))


def _dtype(raw: Config, config: Config) -> spec.Dtype:
    for values in (config, raw):
        for key in ("dtype", "torch_dtype"):
            if values.get(key) is not None:
                return spec.parse_dtype(str(values[key]).removeprefix("torch."))
    raise UsageError(f"it names no dtype; give --dtype {'|'.join(spec.DTYPES)}")


def _bias(config: Config, family: Family) -> bool:
    value = config.get(family.bias_key, family.bias) if family.bias_key else family.bias
    if not isinstance(value, bool):
        raise UsageError(f"{family.bias_key} must be true or false, got {value!r}")
    return value


def _inference_only(config: Config, family: Family) -> str | None:
    if family.dropout_key is None:
        return None
    rate = config.get(family.dropout_key, family.dropout)
    if not (rate is None or _is_number(rate)):
        raise UsageError(f"{family.dropout_key} must be a number, got {rate!r}")
    return f"{family.dropout_key} {rate}: dropout between act·mul and down, which no backend has" if rate else None
