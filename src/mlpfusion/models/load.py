"""Builds the model of a config, with the weights beside it or with random ones."""

from __future__ import annotations

from importlib import metadata, util
from typing import TYPE_CHECKING, Any, Final

import torch

from mlpfusion import limits
from mlpfusion.device import describe
from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.models import trusted

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from mlpfusion.spec import Dtype

REQUIREMENT: Final = "transformers>=5,<6"
_LONGEST: Final = 300  # characters of a library's error that are shown
_WEIGHTS: Final = ("*.safetensors", "*.safetensors.index.json")


def load_model(path: Path, *, device: str, dtype: Dtype | None, layers: int | None, seed: int) -> nn.Module:
    """The language model in a directory, or of one `config.json`, in eval mode; nothing is downloaded.

    Weights are read where the directory holds some and `layers` is not given; else they are random, and `layers` limits
    how many layers are built. Of a model with several parts only the text part is built.

    Raises:
        UsageError: no such file, no config, or a kind of model that is no language model.
        MlpfusionError: transformers is missing, or of a version that is not supported.
    """
    if layers is not None:
        limits.whole("layers", layers, limits.LAYERS)
    limits.whole("seed", seed, limits.SEED)
    check_transformers()
    if not path.exists():
        raise UsageError(f"model {str(path)!r} does not exist; valid: a config.json, or a directory with one")
    folder = path if path.is_dir() else path.parent
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"model {str(path)!r} has no config.json")
    trusted.check_configs(folder, file)
    read = layers is None and path.is_dir()
    if read:
        trusted.check_weights(folder)
    with trusted.offline():
        return _built(path, file, device=device, dtype=dtype, layers=layers, seed=seed, read=read)


def _built(
    path: Path, file: Path, *, device: str, dtype: Dtype | None, layers: int | None, seed: int, read: bool
) -> nn.Module:
    """The model, once its folder is known to run nothing; with the weights in it if `read` and there are some."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(file, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each configuration class has checks, and mistakes, of its own
        raise UsageError(f"model {str(path)!r}: its config cannot be read: {_said(error)}") from None
    config = config.get_text_config()
    if layers is not None:
        _shorten(config, layers)
    kinds = (
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForSeq2SeqLM,
        transformers.AutoModelForMaskedLM,
    )
    auto = next((kind for kind in kinds if type(config) in kind._model_mapping), None)
    if auto is None:
        raise UsageError(f"model {str(path)!r} is a {config.model_type!r}, which is no language model")
    wanted = None if dtype is None else getattr(torch, dtype)
    folder = file.parent
    read = read and any(any(folder.glob(pattern)) for pattern in _WEIGHTS)
    torch.manual_seed(seed)
    made = _read(auto, folder, config, wanted) if read else _random(auto, path, config, wanted, device)
    return made.to(device).eval()


def _read(auto: Any, folder: Path, config: Any, dtype: torch.dtype | None) -> nn.Module:
    """The model with the weights in a folder, all of them."""
    try:
        made: tuple[nn.Module, dict[str, Any]] = auto.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # damaged files, packages that are missing, too little memory
        raise UsageError(f"model {str(folder)!r}: its weights cannot be read: {_said(error)}") from None
    model, loaded = made
    lacking = sorted(loaded["missing_keys"])
    if lacking:  # which the library would fill with random numbers
        raise UsageError(f"model {str(folder)!r}: its weights lack {len(lacking)} of the model's, such as {lacking[0]}")
    return model


def _random(auto: Any, path: Path, config: Any, dtype: torch.dtype | None, device: str) -> nn.Module:
    """The model with random weights."""
    if getattr(config, "quantization_config", None):
        raise UsageError(f"model {str(path)!r}: its weights are quantised (quantization_config); random ones are not")
    try:
        with torch.device(device):
            made: nn.Module = auto.from_config(
                config, dtype=dtype or config.dtype or torch.float32, trust_remote_code=False
            )
    except Exception as error:  # an activation that is not known, sizes that do not go together, too little memory
        raise UsageError(f"model {str(path)!r} cannot be built: {_said(error)}") from None
    return made


def _said(error: Exception) -> str:
    """An error of the library in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"


def random_inputs(model: Any, *, batch: int, seq: int, device: str, seed: int) -> dict[str, Tensor]:
    """Random token ids [batch, seq] for a language model, also for its decoder where it has one.

    Raises:
        UsageError: there is no memory for them, or the model has no tokens.
    """
    limits.whole("batch", batch, limits.SIZE)
    limits.whole("seq", seq, limits.SIZE)
    limits.whole("batch x seq", batch * seq, limits.TOKENS)
    generator = torch.Generator("cpu").manual_seed(limits.whole("seed", seed, limits.SEED))
    vocabulary = limits.whole("vocab_size", model.config.get_text_config().vocab_size, limits.SIZE)
    # Logits twice in 16 bits, their loss in fp32 and its gradient: the least that a comparison holds at once.
    needed, free = batch * seq * 12 * vocabulary, describe(torch.device(device)).free_bytes
    if free is not None and needed > free:
        raise UsageError(
            f"batch {batch} x seq {seq} with a vocabulary of {vocabulary} needs more than {needed / 1e9:.1f} GB for "
            f"its logits; {free / 1e9:.1f} GB are free"
        )
    try:
        ids = torch.randint(vocabulary, (batch, seq), generator=generator).to(device)
    except RuntimeError as error:
        raise UsageError(f"{batch} sequences of {seq} tokens cannot be made: {_said(error)}") from None
    return {"input_ids": ids} | ({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {})


def check_transformers() -> None:
    """Raise a `MlpfusionError` unless transformers is installed in a version that is supported."""
    if util.find_spec("transformers") is None:
        raise MlpfusionError("transformers is not installed (pip install 'mlpfusion[transformers]')")
    version = metadata.version("transformers")
    if version.split(".")[0] != "5":
        raise MlpfusionError(f"transformers {version} is installed, need {REQUIREMENT}")


def _shorten(config: Any, layers: int) -> None:
    """Keep the first `layers` layers of a config, with its settings for each."""
    had = config.num_hidden_layers
    if layers > had:
        raise UsageError(f"--layers is {layers}, and the model has {had}")
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == had:
            setattr(config, name, value[:layers])
    config.num_hidden_layers = layers
