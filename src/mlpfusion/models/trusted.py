"""Restricts what is read from a model's folder: no code, no Hub kernel, no pickle, no other files."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Final

from mlpfusion.errors import UsageError
from mlpfusion.storage import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_BYTES: Final = 2**26
_CONFIGS: Final = ("config.json", "generation_config.json")
_WITHOUT: Final = "where transformers knows the model_type itself, give a copy of the model without this key"
# Keys by which a configuration has the library run code or read weights that are not the folder's own.
_CODE: Final = {
    "auto_map": f"names code of the model's own, which is not run; {_WITHOUT}",
    "custom_pipelines": f"names code of the model's own, which is not run; {_WITHOUT}",
    "transformers_weights": "names another file of weights; valid: those that safetensors call model",
}
# What a layer may be run by: the library's own. `flash_attention_2` and its like become kernels of the Hub where their
# package is not installed, or the model prefers those; so do some of the others of experts.
_IMPLEMENTATIONS: Final = ("eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm")
_PAGED: Final = "paged|"
# Weights that may run code when they are read.
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".msgpack", ".h5")
# Weights that nothing here reads: a model that has but these would get random ones.
_UNREAD: Final = (".bin.index.json", ".gguf", ".ggml", ".npz", ".npy", ".onnx", ".tflite", ".ot")
# What trainers leave beside the weights; nothing reads it.
_LEFT: Final = ("training_args.", "optimizer.", "scheduler.", "scaler.", "rng_state")
_OFFLINE: Final = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def check_configs(folder: Path, config: Path) -> None:
    """Raise a UsageError where a configuration has the library run code of the model or of the Hub."""
    for path in dict.fromkeys((config, *(folder / name for name in _CONFIGS))):
        if path.is_file():
            for key, value in _items(_json(path)):
                _check(f"model configuration {str(path)!r}", key, value)


def harmless(values: Any) -> Any:
    """The values of a configuration without the keys by which the library runs code of the model or of the Hub."""
    if isinstance(values, list):
        return [harmless(each) for each in values]
    if not isinstance(values, dict):
        return values
    kept = {key: each for key, each in values.items() if key not in _CODE and not key.endswith("_implementation")}
    return {key: harmless(each) for key, each in kept.items()}


def check_weights(folder: Path) -> None:
    """Raise a UsageError where a folder has weights that are no safetensors, or an index that leads out of it."""
    refused = _PICKLES if any(folder.glob("*.safetensors")) else _PICKLES + _UNREAD
    for path in sorted(folder.iterdir()):
        if path.name.lower().endswith(refused) and not path.name.startswith(_LEFT):
            raise UsageError(
                f"model {str(folder)!r} holds {path.name!r}: of weights only safetensors are read, as others may run "
                "code then; convert them or take the file away, or build random weights by --layers N"
            )
    if (folder / "adapter_config.json").exists():
        raise UsageError(f"model {str(folder)!r} holds 'adapter_config.json', an adapter of another model; merge it")
    for index in sorted(folder.glob("*.safetensors.index.json")):
        _check_index(folder, index)


def _check_index(folder: Path, index: Path) -> None:
    shown = f"index of weights {str(index)!r}"
    found = _json(index)
    named = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(named, dict) or not named:
        raise UsageError(f"{shown} has no weight_map of names and files")
    for name in dict.fromkeys(map(str, named.values())):
        if "/" in name or "\\" in name or not name.endswith(".safetensors"):
            raise UsageError(f"{shown} names {name!r}; valid: a .safetensors file beside it")
        if not (folder / name).is_file():
            raise UsageError(f"{shown} names {name!r}, which does not exist")


def _check(where: str, key: str, value: Any) -> None:
    if key in _CODE and value:
        raise UsageError(f"{where}: {key} {value!r:.200} {_CODE[key]}")
    if key.endswith("_implementation"):
        for name in _leaves(value):
            plain = name.removeprefix(_PAGED) if isinstance(name, str) else name
            if name is not None and plain not in _IMPLEMENTATIONS:
                raise UsageError(
                    f"{where}: {key} {name!r} is or may become a kernel of the Hub, which is not run; valid: "
                    f"{', '.join(_IMPLEMENTATIONS)}"
                )


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            yield from one.items()
        if isinstance(one, dict | list):
            todo += one.values() if isinstance(one, dict) else one


def _leaves(value: Any) -> Iterator[Any]:
    if not isinstance(value, dict | list):
        yield value
        return
    for one in value.values() if isinstance(value, dict) else value:
        yield from _leaves(one)


def _json(path: Path) -> Any:
    try:
        return json.loads(files.read_whole("model file", path, _MOST_BYTES))
    except UsageError:
        raise
    except (ValueError, RecursionError) as error:
        raise UsageError(f"model file {str(path)!r} is not JSON, or cut short: {error}") from None


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Within, Hugging Face's libraries ask no network, whether they are imported already or not."""
    before = {name: os.environ.get(name) for name in _OFFLINE}
    os.environ.update(dict.fromkeys(_OFFLINE, "1"))
    from huggingface_hub import constants

    was, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = was
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
